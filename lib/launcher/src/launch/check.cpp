#include "smp/launcher/launch/check.h"

#include <system_error>

#include "smp/plan/base/errors.h"

namespace smp::launch {

Check run_check(const char* name, const std::function<std::string()>& check) {
  try {
    return {name, true, check()};
  } catch (const ConfigError& error) {
    return {name, false, error.what()};
  } catch (const std::system_error& error) {  // a disk or a network that does not bring a file
    return {name, false, error.what()};
  }
}

}  // namespace smp::launch
