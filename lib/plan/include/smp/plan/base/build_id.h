#pragma once

#include <string>

namespace smp {

// The build ID that the linker wrote into this program, in hex. Two hosts whose programs have the
// same build ID run the same code. Empty if the program was linked without one.
std::string own_build_id();

}  // namespace smp
