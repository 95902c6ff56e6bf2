#include "smp/plan/text/json.h"

namespace nlohmann {

template class basic_json<>;
template class basic_json<ordered_map>;
template json json::parse(std::string&, const json::parser_callback_t, const bool, const bool);
template json json::parse(const std::string&, const json::parser_callback_t, const bool,
                          const bool);
template json json::parse(std::string&&, const json::parser_callback_t, const bool, const bool);
template ordered_json ordered_json::parse(std::string&, const ordered_json::parser_callback_t,
                                          const bool, const bool);
template ordered_json ordered_json::parse(const std::string&, const ordered_json::parser_callback_t,
                                          const bool, const bool);
template ordered_json ordered_json::parse(std::string&&, const ordered_json::parser_callback_t,
                                          const bool, const bool);

}  // namespace nlohmann
