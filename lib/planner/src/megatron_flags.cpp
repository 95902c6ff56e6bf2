#include "megatron_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "smp/plan/suggest.h"
#include "smp_dictionary.h"

namespace smp {
namespace {

YamlNode scalar(const ShellWord& word) {
  YamlNode node;
  node.kind = YamlNode::Kind::kScalar;
  node.place = word.place;
  node.text = word.text;
  return node;
}

const ForeignKey* row_of(std::string_view flag) {
  for (const ForeignKey& row : megatron_keys()) {
    if (row.key == flag) return &row;
  }
  return nullptr;
}

class FlagScan {
 public:
  FlagScan(ForeignReader& reader, Diagnostics& diagnostics, Imported& out)
      : reader_(reader), diagnostics_(diagnostics), out_(out) {}

  void scan(const std::vector<ShellWord>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!words[i].text.starts_with("--") || words[i].text.size() < 3) continue;
      const Place place = words[i].place;
      std::string flag = words[i].text.substr(2);
      std::vector<ShellWord> values;
      if (const size_t equals = flag.find('='); equals != std::string::npos) {
        ShellWord value = words[i];
        value.text = flag.substr(equals + 1);
        value.place.column += static_cast<int>(equals) + 3;
        values.push_back(value);
        flag.resize(equals);
      } else {
        while (i + 1 < words.size() && !words[i + 1].text.starts_with("--")) {
          values.push_back(words[++i]);
        }
      }
      if (flag == "nproc_per_node") flag = "nproc-per-node";
      take(flag, place, values);
    }
  }

 private:
  void take(const std::string& flag, Place place, const std::vector<ShellWord>& values) {
    const ForeignKey* row = row_of(flag);
    if (row == nullptr) {
      unknown(flag, place);
      return;
    }
    YamlNode node;
    if (row->form == Form::kBool) {
      node = scalar({"true", place, ""});
    } else if (values.empty()) {
      diagnostics_.error(place, fmt::format("--{} needs a value", flag));
      return;
    } else if (row->form == Form::kList) {
      node.kind = YamlNode::Kind::kList;
      node.place = place;
      for (const ShellWord& value : values) node.items.push_back(scalar(value));
    } else {
      node = scalar(values.front());
    }
    const size_t used = row->form == Form::kBool || row->use == Use::kIgnored ? 0
                        : row->form == Form::kList                            ? values.size()
                                                                              : 1;
    for (size_t i = 0; i < used; ++i) {
      if (values[i].unset.empty()) continue;
      diagnostics_.error(values[i].place,
                         fmt::format("the value of --{} is {}, which this text does not set", flag,
                                     values[i].unset));
      return;
    }
    if (reader_.has(flag)) {
      if (row->form != Form::kBool && reader_.text(flag) != node.text) {
        diagnostics_.error(place, fmt::format("--{} is given twice, as {} and as {}", flag,
                                              reader_.text(flag).value_or(""), node.text));
      }
      return;
    }
    reader_.add(flag, place, node);
  }

  void unknown(const std::string& flag, Place place) {
    if (std::ranges::count(megatron_words(), flag) > 0) {
      out_.ignored.push_back("--" + flag);
      return;
    }
    std::vector<std::string> names;
    for (const ForeignKey& row : megatron_keys()) names.emplace_back(row.key);
    // A typing mistake is at most two letters; many flags of Megatron differ from these by more.
    const auto near = nearest(flag, names);
    if (near && edit_distance(flag, *near) <= 2) {
      diagnostics_.error(place,
                         fmt::format("unknown flag '--{}', did you mean '--{}'?", flag, *near));
      return;
    }
    out_.warnings.push_back(
        fmt::format("{}:{}:{}: unknown flag '--{}'", out_.file, place.line, place.column, flag));
  }

  ForeignReader& reader_;
  Diagnostics& diagnostics_;
  Imported& out_;
};

}  // namespace

void read_megatron_flags(const std::vector<ShellWord>& words, ForeignReader& reader,
                         Diagnostics& diagnostics, Imported& out) {
  FlagScan(reader, diagnostics, out).scan(words);
}

}  // namespace smp
