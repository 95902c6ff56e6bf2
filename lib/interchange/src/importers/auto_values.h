#pragma once

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/imported.h"

namespace smp::importers {

// "auto" is a value that the reading script fills in. A warning names the value used here: the
// planner's choice, or the job's default. The keys that the planner chooses join `out.open`.
void say_autos(ForeignReader& reader, Imported& out);

}  // namespace smp::importers
