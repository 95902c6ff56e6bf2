#pragma once

#include <string>

#include "smp/plan/framework/framework.h"

// Frameworks as text for people and for programs. Pure; any thread.
namespace smp::framework {

// A line for each shipped framework: the releases that it describes, the ranges of measured over
// predicted memory and time, and the published runs that they rest on.
std::string frameworks_text();
// The same as a JSON list.
std::string frameworks_json();

// Every key of the framework's file, those of the file that it extends included, as JSON.
std::string framework_json(const Framework& framework);

// The part of docs/frameworks.md below the heading of its keys: a table for each section.
std::string habits_markdown();

}  // namespace smp::framework
