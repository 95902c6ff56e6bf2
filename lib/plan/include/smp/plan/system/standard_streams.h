#pragma once

namespace smp::system {

// Opens /dev/null in place of each of standard input, output and error that the caller of the
// program has closed: no file may get its number, and what is printed must not land there. False:
// standard output was closed, so nobody hears what is printed. Call it first in main.
bool fill_standard_streams();

}  // namespace smp::system
