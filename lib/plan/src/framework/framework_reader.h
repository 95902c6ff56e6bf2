#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/framework/framework.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::framework {

// The files that another one may extend.
struct Shipped {
  std::vector<std::string> names;
  std::function<std::shared_ptr<const Framework>(const std::string& name)> read;
};

// Reads the text of one framework file, which is source `source` of `diagnostics`, strictly. A key
// that is unknown, duplicate, missing or mistyped is a mistake; with `extends: NAME` the missing
// keys are those of the shipped file NAME. Mistakes go to `diagnostics`; the result means nothing
// then.
Framework read_framework(std::string_view text, int source, const Shipped& shipped,
                         text::Diagnostics& diagnostics);

}  // namespace smp::framework
