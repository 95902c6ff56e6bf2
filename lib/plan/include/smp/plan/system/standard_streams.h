#pragma once

namespace smp::system {

// Opens /dev/null in place of each of standard input, output and error that is closed at the start.
// Otherwise a file could get its number, and output would land in that file. False if standard
// output was closed: nobody reads the output. Call it first in main.
bool fill_standard_streams();

}  // namespace smp::system
