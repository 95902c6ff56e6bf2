#include "smp/launcher/process/output.h"

#include <algorithm>

namespace smp::process {
namespace {

constexpr auto kProgressEvery = std::chrono::seconds(1);
constexpr auto kLiveEvery = std::chrono::milliseconds(100);
constexpr size_t kTailBytes = 64 << 10;
constexpr size_t kLongestQuote = 1000;  // bytes of a line that a report quotes

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

// The largest cut <= limit that does not split a UTF-8 character.
size_t cut_at(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text.size();
  size_t cut = limit;
  while (cut > limit - 4 && continues_character(text[cut])) --cut;
  return continues_character(text[cut]) ? limit : cut;
}

}  // namespace

void LineSplitter::feed(std::string_view bytes, Clock::time_point now, std::string& lines) {
  while (!bytes.empty()) {
    if (feed_plain_line(bytes, lines)) continue;
    if (after_return_) {
      after_return_ = false;
      if (bytes.front() != '\n') overwrite(now, lines);
    }
    const size_t stop = bytes.find_first_of("\r\n");
    append(bytes.substr(0, stop), lines);
    if (stop == bytes.npos) return;
    if (bytes[stop] == '\n')
      end_line(lines);
    else
      after_return_ = true;
    bytes.remove_prefix(stop + 1);
  }
}

// Most lines arrive complete and without '\r'; these are copied once.
bool LineSplitter::feed_plain_line(std::string_view& bytes, std::string& lines) const {
  if (after_return_ || open_ || !line_.empty()) return false;
  const size_t end = bytes.find('\n');
  const std::string_view line = bytes.substr(0, end + 1);
  if (end >= kLongestLine || line.find('\r') != line.npos) return false;  // npos is larger
  lines.append(prefix_).append(line);
  bytes.remove_prefix(end + 1);
  return true;
}

void LineSplitter::append(std::string_view text, std::string& lines) {
  line_.append(text);
  while (line_.size() > kLongestLine) {
    const size_t cut = cut_at(line_, kLongestLine);
    lines.append(prefix_).append(line_, 0, cut).push_back('\n');
    line_.erase(0, cut);
  }
}

void LineSplitter::overwrite(Clock::time_point now, std::string& lines) {
  if (now - last_shown_ >= (live_ ? kLiveEvery : kProgressEvery) && !line_.empty()) {
    last_shown_ = now;
    if (live_) {
      lines.append(kEraseLine).append(prefix_).append(line_);
      open_ = true;
    } else {
      end_line(lines);
    }
  }
  line_.clear();
}

void LineSplitter::end_line(std::string& lines) {
  if (open_) lines.append(kEraseLine);
  open_ = false;
  lines.append(prefix_).append(line_).push_back('\n');
  line_.clear();
}

void LineSplitter::flush(std::string& lines) {
  if (!line_.empty() || open_) end_line(lines);
  after_return_ = false;
}

void Tail::feed(std::string_view bytes) {
  if (bytes.size() > kTailBytes) bytes.remove_prefix(bytes.size() - kTailBytes);
  if (bytes_.size() + bytes.size() > 2 * kTailBytes)
    bytes_.erase(0, bytes_.size() + bytes.size() - kTailBytes);
  bytes_.append(bytes);
}

std::vector<std::string> Tail::last_lines(size_t count) const {
  std::vector<std::string> lines;
  std::string_view rest = bytes_;
  if (!rest.empty() && rest.back() == '\n') rest.remove_suffix(1);
  while (!rest.empty() && lines.size() < count) {
    const size_t before = rest.rfind('\n');
    std::string_view line = before == rest.npos ? rest : rest.substr(before + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    line.remove_prefix(line.rfind('\r') + 1);  // npos + 1 == 0
    const size_t cut = cut_at(line, kLongestQuote);
    lines.push_back(std::string(line.substr(0, cut)) + (cut < line.size() ? "..." : ""));
    rest = before == rest.npos ? std::string_view() : rest.substr(0, before);
  }
  std::reverse(lines.begin(), lines.end());
  return lines;
}

}  // namespace smp::process
