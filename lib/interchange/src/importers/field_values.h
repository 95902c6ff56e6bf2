#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "importers/foreign_keys.h"

// Values of fields as YAML and Python's print() write them. Pure.
namespace smp::importers {

text::YamlNode scalar_node(std::string text, text::Place place);

bool is_none(const text::YamlNode& node);  // null, None
bool is_off(const text::YamlNode& node);   // none, false, or an empty list or map

// The last word of "torch.nn.functional.silu", of {_target_: that}, of "AttnBackend.flash" and of
// "<function silu at 0x7f00>".
std::string last_word(const text::YamlNode& node);

// The items of a list, or of Python's text of one.
std::vector<std::string> items_of(const text::YamlNode& node);
std::string with_commas(const std::vector<std::string>& items);

// Whether the value, or each item of a list, is one of the words, which have blanks between.
bool is_one_of(std::string_view words, const text::YamlNode& node);

}  // namespace smp::importers
