#pragma once

#include <memory>
#include <string>

#include "smp/plan/framework/framework.h"
#include "smp/plan/text/diagnostics.h"

namespace smp::framework {

// What a user's framework file says. Its mistakes go to `diagnostics`; the result means nothing
// then. Throws ConfigError if the file cannot be read.
std::shared_ptr<const Framework> load_framework(const std::string& path,
                                                text::Diagnostics& diagnostics);

}  // namespace smp::framework
