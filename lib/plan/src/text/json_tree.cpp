#include "smp/plan/text/json_tree.h"

#include <fmt/format.h>

#include <unordered_map>
#include <vector>

#include "smp/plan/text/json.h"

namespace smp::text {
namespace {

// Follows nlohmann's events through the text: the parser keeps the last of equal keys and gives no
// places, so the tree is built here. Tokens come in the order of the text; `at_` is where the last
// one ended.
class TreeBuilder final : public nlohmann::json_sax<Json> {
 public:
  TreeBuilder(std::string_view text, int source, Diagnostics& diagnostics, int max_depth)
      : text_(text), source_(source), diagnostics_(diagnostics), max_depth_(max_depth) {
    root_.place = {source, 1, 1};
  }

  bool null() override { return literal(YamlNode::Kind::kNull); }
  bool boolean(bool) override { return literal(YamlNode::Kind::kScalar); }
  bool number_integer(number_integer_t) override { return literal(YamlNode::Kind::kScalar); }
  bool number_unsigned(number_unsigned_t) override { return literal(YamlNode::Kind::kScalar); }
  bool number_float(number_float_t, const string_t&) override {
    return literal(YamlNode::Kind::kScalar);
  }
  bool binary(binary_t&) override { return false; }

  bool string(string_t& value) override {
    YamlNode node = next(YamlNode::Kind::kScalar);
    skip_string();
    node.quoted = true;
    node.text = value;
    return attach(std::move(node));
  }

  bool start_object(size_t) override { return open(YamlNode::Kind::kMap); }
  bool start_array(size_t) override { return open(YamlNode::Kind::kList); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    const YamlNode node = next(YamlNode::Kind::kScalar);
    skip_string();
    Frame& parent = frames_.back();
    const auto [first, is_new] = parent.lines.try_emplace(value, node.place.line);
    if (!is_new) {
      diagnostics_.error(node.place, fmt::format("{} is given twice, first on line {}",
                                                 quoted_for_message(value), first->second));
    }
    parent.keep = is_new;
    parent.key = value;
    parent.key_place = node.place;
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    const size_t at = position > 0 ? std::min(position - 1, text_.size()) : 0;
    diagnostics_.error(place_at(at), complaint(at));
    return false;
  }

  YamlNode finish() {
    while (!frames_.empty()) {
      frames_.back().node.reported = true;
      close();
    }
    return std::move(root_);
  }

 private:
  struct Frame {
    YamlNode node;
    bool keep = true;
    std::string key;
    Place key_place;
    std::unordered_map<std::string, int> lines;  // of the keys so far
  };

  std::string complaint(size_t at) const {
    const std::string_view rest = text_.substr(std::min(at, text_.size()));
    for (const auto& [python, json] :
         {std::pair{"True", "true"}, {"False", "false"}, {"None", "null"}}) {
      if (rest.starts_with(python))
        return fmt::format("{} is Python syntax: write {} in JSON", python, json);
    }
    if (at >= text_.size()) return "the JSON text is incomplete";
    const char c = text_[at];
    if (c == '\'') return "JSON takes double quotes only";
    if (c == '#' || c == '/') return "JSON has no comments";
    if (c == '}' || c == ']') {
      return fmt::format("unexpected '{}': remove the comma before it", c);
    }
    if (rest.starts_with("NaN") || rest.starts_with("Infinity") || rest.starts_with("inf")) {
      return "JSON has no NaN and no infinity";
    }
    const size_t name =
        rest.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    const size_t colon = rest.find_first_not_of(" \t", name);
    if (name > 0 && colon != rest.npos && rest[colon] == ':') {
      return fmt::format("a name must be in double quotes: \"{}\"", rest.substr(0, name));
    }
    return fmt::format("not valid JSON at {}", quoted_for_message(rest.substr(0, rest.find('\n'))));
  }

  Place place_at(size_t position) {
    for (; counted_ < position; ++counted_) {
      if (text_[counted_] != '\n') continue;
      ++line_;
      line_begin_ = counted_ + 1;
    }
    return {source_, line_, static_cast<int>(position - line_begin_) + 1};
  }

  // The token that begins next.
  YamlNode next(YamlNode::Kind kind) {
    while (at_ < text_.size() && std::string_view(" \t\r\n,:").find(text_[at_]) < 6) ++at_;
    YamlNode node;
    node.kind = kind;
    node.place = place_at(at_);
    return node;
  }

  void skip_string() {
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      if (text_[at_] == '\\') ++at_;
    }
    ++at_;
  }

  bool literal(YamlNode::Kind kind) {
    YamlNode node = next(kind);
    const size_t begin = at_;
    while (at_ < text_.size() && std::string_view(" \t\r\n,:]}").find(text_[at_]) > 7) ++at_;
    if (kind == YamlNode::Kind::kScalar) node.text = text_.substr(begin, at_ - begin);
    return attach(std::move(node));
  }

  bool open(YamlNode::Kind kind) {
    Frame frame;
    frame.node = next(kind);
    if (static_cast<int>(frames_.size()) >= max_depth_) {
      diagnostics_.error(frame.node.place,
                         fmt::format("nested more than {} levels deep", max_depth_));
      return false;
    }
    ++at_;
    frames_.push_back(std::move(frame));
    return true;
  }

  bool close() {
    while (at_ < text_.size() && text_[at_] != '}' && text_[at_] != ']') ++at_;
    ++at_;
    YamlNode node = std::move(frames_.back().node);
    frames_.pop_back();
    return attach(std::move(node));
  }

  bool attach(YamlNode node) {
    if (frames_.empty()) {
      root_ = std::move(node);
    } else if (Frame& parent = frames_.back(); parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (parent.keep) {
      parent.node.entries.push_back({parent.key, parent.key_place, std::move(node)});
    }
    return true;
  }

  std::string_view text_;
  int source_;
  Diagnostics& diagnostics_;
  int max_depth_;
  size_t at_ = 0;
  size_t counted_ = 0;  // up to here lines are counted
  size_t line_begin_ = 0;
  int line_ = 1;
  YamlNode root_;
  std::vector<Frame> frames_;
};

}  // namespace

YamlTree parse_json(std::string_view text, int source, Diagnostics& diagnostics,
                    YamlLimits limits) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.size() > limits.bytes) {
    diagnostics.error({source, 1, 1},
                      fmt::format("the file has {} bytes, more than the limit of {} bytes",
                                  text.size(), limits.bytes));
    return {};
  }
  TreeBuilder builder(text, source, diagnostics, limits.depth);
  YamlTree tree;
  tree.complete = Json::sax_parse(text.begin(), text.end(), &builder);
  tree.root = builder.finish();
  return tree;
}

}  // namespace smp::text
