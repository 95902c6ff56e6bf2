#include "smp/plan/base/check.h"

namespace smp {

void check_failed(const char* file, int line, const std::string& text) {
  std::ostringstream out;
  out << "internal error, please report: " << file << ':' << line << ": check failed: " << text;
  throw InternalError(out.str());
}

}  // namespace smp
