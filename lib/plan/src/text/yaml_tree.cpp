#include "smp/plan/text/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <optional>
#include <sstream>
#include <unordered_map>

#include "text/text_scan.h"

namespace smp::text {

namespace {

struct Stop {};  // thrown through the parser once the rest cannot be read

// Builds the tree from yaml-cpp's events: its Node API drops duplicate keys and expands aliases.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, int source, Diagnostics& diagnostics, int max_depth)
      : text_(text), source_(source), diagnostics_(diagnostics), max_depth_(max_depth) {
    root_.place = {source, 1, 1};
  }

  Place place_of(const YAML::Mark& mark) const { return {source_, mark.line + 1, mark.column + 1}; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;
    diagnostics_.error(place_of(mark), "a second document begins here; write one document a file");
    throw Stop{};
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    YamlNode node;
    node.place = awaits_value() ? frames_.back().key_place : place_of(mark);
    attach(std::move(node));
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse_anchor(mark, 1);
    YamlNode node;
    node.place = place_of(mark);
    node.reported = true;
    attach(std::move(node));
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    const bool tagged = refuse_tag(mark, tag);
    node.reported = refuse_anchor(mark, anchor) || tagged;
    node.kind = YamlNode::Kind::kScalar;
    node.place = place_of(mark);
    node.quoted = tag == "!";
    node.text = value;
    if (!node.reported) check_extent(node, static_cast<size_t>(mark.pos));
    attach(std::move(node));
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(/*whole=*/true); }
  void OnMapEnd() override { close(/*whole=*/true); }

  // The tree; after a syntax error, what was read until then. A scalar that ran on over several
  // lines is then most likely the victim of that error, and is not reported as well.
  YamlNode finish(bool complete) {
    if (complete) report_run_on();
    while (!frames_.empty()) close(/*whole=*/false);
    return std::move(root_);
  }

 private:
  struct Frame {
    YamlNode node;
    bool has_key = false;
    bool keep = true;  // whether the value of the key is wanted
    std::string key;
    Place key_place;
    std::unordered_map<std::string, int> lines;  // of the keys so far
  };

  bool awaits_value() const {
    return !frames_.empty() && frames_.back().node.kind == YamlNode::Kind::kMap &&
           frames_.back().has_key;
  }

  bool refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor == 0) return false;
    diagnostics_.error(place_of(mark),
                       "anchors and aliases (&, *) are not allowed; write the value out");
    return true;
  }

  bool refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (tag.empty() || tag == "?" || tag == "!") return false;
    diagnostics_.error(place_of(mark), "tags (!) are not allowed; write the value alone");
    return true;
  }

  // yaml-cpp takes the end of the file for a closing quote, and joins lines of a plain scalar.
  void check_extent(YamlNode& node, size_t begin) {
    report_run_on();
    if (begin >= text_.size()) return;
    if (!node.quoted) {
      if (text_.substr(begin, node.text.size()) == node.text) return;
      run_on_ = node.place;
      node.reported = true;
    } else if (text_[begin] == '"' || text_[begin] == '\'') {
      if (is_closed(begin)) return;
      diagnostics_.error(node.place, "this quote is never closed");
      node.reported = true;
    }
  }

  bool is_closed(size_t begin) const {
    const char quote = text_[begin];
    for (size_t i = begin + 1; i < text_.size(); ++i) {
      if (quote == '"' && text_[i] == '\\') {
        ++i;
      } else if (text_[i] == quote) {
        if (quote == '\'' && i + 1 < text_.size() && text_[i + 1] == quote) {
          ++i;
        } else {
          return true;
        }
      }
    }
    return false;
  }

  void report_run_on() {
    if (!run_on_) return;
    diagnostics_.error(
        *run_on_,
        "this value continues on the next line; put it in quotes, or check the indentation");
    run_on_.reset();
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    report_run_on();
    if (static_cast<int>(frames_.size()) >= max_depth_) {
      diagnostics_.error(place_of(mark),
                         fmt::format("nested more than {} levels deep", max_depth_));
      throw Stop{};
    }
    const bool tagged = refuse_tag(mark, tag);
    Frame frame;
    frame.node.reported = refuse_anchor(mark, anchor) || tagged;
    frame.node.kind = kind;
    frame.node.place = place_of(mark);
    frames_.push_back(std::move(frame));
  }

  void close(bool whole) {
    YamlNode node = std::move(frames_.back().node);
    frames_.pop_back();
    if (!whole) node.reported = true;
    attach(std::move(node));
  }

  void attach(YamlNode node) {
    if (frames_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = frames_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.has_key) {
      parent.has_key = true;
      parent.key = node.text;
      parent.key_place = node.place;
      parent.keep = !node.reported && accept_key(node, parent);
    } else {
      parent.has_key = false;
      if (parent.keep) {
        parent.node.entries.push_back({parent.key, parent.key_place, std::move(node)});
      }
    }
  }

  bool accept_key(const YamlNode& key, Frame& parent) {
    if (key.kind != YamlNode::Kind::kScalar || key.text.empty()) {
      diagnostics_.error(key.place, fmt::format("a key must be one word, not {}", described(key)));
      return false;
    }
    if (key.text == "<<" && !key.quoted) {
      diagnostics_.error(key.place, "merge keys (<<) are not allowed; write the keys out");
      return false;
    }
    const auto [first, is_new] = parent.lines.try_emplace(key.text, key.place.line);
    if (!is_new) {
      diagnostics_.error(key.place, fmt::format("{} is given twice, first on line {}",
                                                quoted_for_message(key.text), first->second));
    }
    return is_new;
  }

  std::string_view text_;
  int source_;
  Diagnostics& diagnostics_;
  int max_depth_;
  int documents_ = 0;
  YamlNode root_;
  std::vector<Frame> frames_;
  std::optional<Place> run_on_;
};

// A message of yaml-cpp in words for the writer of a file.
std::string explained(const std::string& message) {
  static const std::unordered_map<std::string, std::string> kPlain = {
      {YAML::ErrorMsg::MAP_VALUE,
       "unexpected ':'; check the indentation, or put the value in quotes"},
      {YAML::ErrorMsg::END_OF_MAP, "the indentation does not fit the lines above"},
      {YAML::ErrorMsg::END_OF_SEQ, "the indentation does not fit the list above"},
      {YAML::ErrorMsg::END_OF_MAP_FLOW, "expected ',' or '}' here: a '{' is not closed"},
      {YAML::ErrorMsg::END_OF_SEQ_FLOW, "expected ',' or ']' here: a '[' is not closed"},
      {YAML::ErrorMsg::FLOW_END, "a closing bracket without an opening bracket"},
      {YAML::ErrorMsg::BLOCK_ENTRY, "unexpected list item ('- ')"},
      {YAML::ErrorMsg::UNKNOWN_TOKEN, "a value cannot begin with this character; put it in quotes"},
      {YAML::ErrorMsg::UNKNOWN_ANCHOR,
       "anchors and aliases (&, *) are not allowed; write the value out"},
  };
  const auto found = kPlain.find(message);
  return found != kPlain.end() ? found->second : "not valid YAML: " + message;
}

}  // namespace

const YamlEntry* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

YamlTree parse_yaml(std::string_view text, int source, Diagnostics& diagnostics,
                    YamlLimits limits) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (text.size() > limits.bytes) {
    diagnostics.error({source, 1, 1},
                      fmt::format("the file has {} bytes, more than the limit of {} bytes",
                                  text.size(), limits.bytes));
    return {};
  }
  if (!scan_text(text, source, diagnostics)) return {};

  TreeBuilder builder(text, source, diagnostics, limits.depth);
  bool complete = false;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
    complete = true;
  } catch (const Stop&) {
  } catch (const YAML::Exception& exception) {
    diagnostics.error(builder.place_of(exception.mark), explained(exception.msg));
  }
  YamlTree tree;
  tree.root = builder.finish(complete);
  tree.complete = complete;
  return tree;
}

std::string quoted_for_message(std::string_view text) {
  constexpr size_t kMost = 48;
  std::string out;
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7F ? '?' : c;
  }
  if (text.size() > kMost) {
    while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0) == 0x80) out.pop_back();
    if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0xC0) out.pop_back();
    out += "...";
  }
  return "'" + out + "'";
}

std::string described(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull: return "nothing";
    case YamlNode::Kind::kScalar: return quoted_for_message(node.text);
    case YamlNode::Kind::kList: return "a list";
    case YamlNode::Kind::kMap: return "a map";
  }
  return "";
}

}  // namespace smp::text
