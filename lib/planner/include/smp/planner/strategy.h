#pragma once

#include <string_view>

namespace smp {

// How a layout is chosen among those that fit; search.h says what each takes first.
enum class Strategy { kFastest, kBestPractice };
std::string_view name_of(Strategy strategy);  // "fastest", "best-practice"

}  // namespace smp
