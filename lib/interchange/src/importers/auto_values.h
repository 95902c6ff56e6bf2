#pragma once

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/import.h"

namespace smp::importers {

// "auto" is for the script that reads the file. A warning says what stands in its place here: the
// planner's choice, or the value that a job has where its file sets none.
void say_autos(ForeignReader& reader, const Imported& out);

}  // namespace smp::importers
