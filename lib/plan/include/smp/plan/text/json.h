#pragma once

#include <nlohmann/json.hpp>
#include <string>

// nlohmann's JSON. Its reader and its writer are compiled once, in json.cpp: in each file that uses
// them they would cost several seconds.
namespace nlohmann {

extern template class basic_json<>;
extern template class basic_json<ordered_map>;
extern template json json::parse(std::string&, const json::parser_callback_t, const bool,
                                 const bool);
extern template json json::parse(const std::string&, const json::parser_callback_t, const bool,
                                 const bool);
extern template json json::parse(std::string&&, const json::parser_callback_t, const bool,
                                 const bool);
extern template ordered_json ordered_json::parse(std::string&,
                                                 const ordered_json::parser_callback_t, const bool,
                                                 const bool);
extern template ordered_json ordered_json::parse(const std::string&,
                                                 const ordered_json::parser_callback_t, const bool,
                                                 const bool);
extern template ordered_json ordered_json::parse(std::string&&,
                                                 const ordered_json::parser_callback_t, const bool,
                                                 const bool);

}  // namespace nlohmann

namespace smp::text {

using Json = nlohmann::json;                 // sorted by key
using OrderedJson = nlohmann::ordered_json;  // in the order in which keys were added

}  // namespace smp::text
