#pragma once

#include <string>
#include <string_view>

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/imported.h"

namespace smp::importers {

// Sets the keys of `model` that the file has not set, for a model that it gives by name: a folder
// with a config.json (relative to the file or to the working directory), or a published model by
// the name of its repository ("Qwen/Qwen3-8B") or of NeMo's class ("Llama3Config8B"). `shown` is
// the key of the name, at `place`. A warning names a model that is not known. Nothing is set if a
// config.json of the same call gives the model.
void add_named_model(std::string_view shown, text::Place place, const std::string& name,
                     const ImportContext& context, Imported& out);

// Rows of the vocabulary of a published model, by the name of its repository; empty for another.
std::string vocabulary_of_model(const std::string& name);

// Whether add_named_model() would find the model.
bool is_known_model(const std::string& name, const Imported& file);

}  // namespace smp::importers
