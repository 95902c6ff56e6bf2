#pragma once

#include <string>

namespace smp {

// What the linker wrote into this program to tell its builds apart, in hex: two hosts whose
// programs have the same run the same code. Empty if the program was linked without it.
std::string own_build_id();

}  // namespace smp
