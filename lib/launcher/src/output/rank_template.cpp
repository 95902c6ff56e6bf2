#include "smp/launcher/output/rank_template.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "smp/launcher/hosts/rank_list.h"
#include "smp/plan/base/errors.h"

namespace smp::output {
namespace {

using Field = RankTemplate::Field;

constexpr std::array<std::pair<std::string_view, Field>, 5> kFields = {{
    {"rank", Field::kRank},
    {"local_rank", Field::kLocalRank},
    {"host", Field::kHost},
    {"stream", Field::kStream},
    {"time", Field::kTime},
}};

std::string utc(std::chrono::system_clock::time_point time) {
  using std::chrono::milliseconds;
  const auto ms = std::chrono::duration_cast<milliseconds>(time.time_since_epoch());
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(static_cast<std::time_t>(ms.count() / 1000)), ms.count() % 1000);
}

}  // namespace

RankTemplate::RankTemplate(const std::string& option, std::string_view text) {
  const auto refuse = [&, whole = text](const std::string& why) {
    throw ConfigError(fmt::format("{} '{}': {}", option, whole, why));
  };
  std::string literal;
  const auto end_literal = [&] {
    if (!literal.empty()) parts_.push_back({Field::kLiteral, std::exchange(literal, {}), 0});
  };
  while (!text.empty()) {
    const char first = text.front();
    if (first != '{' && first != '}') {
      literal.push_back(first);
      text.remove_prefix(1);
      continue;
    }
    if (text.size() > 1 && text[1] == first) {
      literal.push_back(first);
      text.remove_prefix(2);
      continue;
    }
    const size_t close = text.find('}');
    if (first == '}' || close == text.npos)
      refuse(fmt::format("unmatched '{0}': write {0}{0} for a brace", first));
    std::string_view name = text.substr(1, close - 1);
    text.remove_prefix(close + 1);
    std::string_view width = name;
    name = name.substr(0, name.find(':'));
    width.remove_prefix(name.size());
    const auto* field = std::find_if(kFields.begin(), kFields.end(),
                                     [&](const auto& known) { return known.first == name; });
    if (field == kFields.end())
      refuse(
          fmt::format("unknown field '{}'; the fields are {{rank}}, {{local_rank}}, {{host}}, "
                      "{{stream}}, {{time}}",
                      name));
    const bool is_number = field->second == Field::kRank || field->second == Field::kLocalRank;
    const bool is_width =
        width.size() == 3 && width[1] == '0' && width[2] >= '1' && width[2] <= '9';
    if (!width.empty() && (!is_number || !is_width))
      refuse(fmt::format("'{}{}': only numbers can have a width, as in {{rank:04}}", name, width));
    end_literal();
    parts_.push_back({field->second, {}, width.empty() ? 0 : width[2] - '0'});
  }
  end_literal();
}

bool RankTemplate::has(Field field) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [&](const Part& part) { return part.field == field; });
}

std::string RankTemplate::fill(const RankWords& words) const {
  std::string text;
  for (const Part& part : parts_) {
    switch (part.field) {
      case Field::kLiteral: text += part.text; break;
      case Field::kRank: text += hosts::list_of_ranks(words.ranks, part.width); break;
      case Field::kLocalRank: text += hosts::list_of_ranks(words.local_ranks, part.width); break;
      case Field::kHost: text += words.host; break;
      case Field::kStream: text += words.stream == job::Stream::kOut ? "out" : "err"; break;
      case Field::kTime: text += utc(words.time); break;
    }
  }
  return text;
}

}  // namespace smp::output
