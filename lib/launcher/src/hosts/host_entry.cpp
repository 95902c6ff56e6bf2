#include "hosts/host_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

namespace smp::hosts {
namespace {

constexpr int kHighestGpu = 63;
constexpr int kHighestPort = 65535;
constexpr size_t kMostDigits = 9;
constexpr size_t kLongestName = 253;  // RFC 1035, as text

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_name(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_';
}

int value_of(std::string_view digits) {
  int value = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), value);
  return value;
}

void check_length(const char* whose, std::string_view name, size_t at) {
  if (name.size() > kLongestName)
    throw HostSyntaxError{at, fmt::format("a {}'s name has at most {} characters, and this has {}",
                                          whose, kLongestName, name.size())};
}

std::string_view range_number(HostCursor& cursor) {
  const size_t at = cursor.at();
  const std::string_view digits = cursor.digits();
  if (digits.empty())
    throw HostSyntaxError{at, "a number of a range is missing: write it like node[01-16,20]"};
  if (digits.size() > kMostDigits)
    throw HostSyntaxError{at, fmt::format("'{}' has more than {} digits", digits, kMostDigits)};
  return digits;
}

// Behind '[': every name so far, with every number of the range behind it.
void spread(HostCursor& cursor, std::vector<std::string>& names) {
  const size_t opened = cursor.at() - 1;
  std::vector<std::string> numbers;
  do {
    const size_t at = cursor.at();
    const std::string_view low = range_number(cursor);
    const std::string_view high = cursor.take('-') ? range_number(cursor) : low;
    const int first = value_of(low), last = value_of(high);
    if (first > last)
      throw HostSyntaxError{at, fmt::format("the range {}-{} runs backwards", low, high)};
    if (high.size() < low.size())
      throw HostSyntaxError{at,
                            fmt::format("the range {}-{} has fewer digits at its end", low, high)};
    if (static_cast<int64_t>(last - first + 1) * static_cast<int64_t>(names.size()) +
            static_cast<int64_t>(numbers.size()) >
        kMostHosts)
      throw HostSyntaxError{at, fmt::format("more than {} hosts", kMostHosts)};
    const bool padded = low.front() == '0';
    for (int number = first; number <= last; ++number) {
      std::string text = std::to_string(number);
      if (padded && text.size() < low.size()) text.insert(0, low.size() - text.size(), '0');
      numbers.push_back(std::move(text));
    }
  } while (cursor.take(','));
  if (!cursor.take(']')) throw HostSyntaxError{opened, "this '[' has no ']'"};
  if (names.size() * numbers.size() > kMostHosts)
    throw HostSyntaxError{opened, fmt::format("more than {} hosts", kMostHosts)};
  std::vector<std::string> all;
  all.reserve(names.size() * numbers.size());
  for (const std::string& name : names) {
    for (const std::string& number : numbers) all.push_back(name + number);
  }
  names = std::move(all);
}

std::vector<std::string> read_names(HostCursor& cursor) {
  std::vector<std::string> names{""};
  const size_t start = cursor.at();
  while (true) {
    check_length("host", names.front(), start);  // before it is multiplied
    if (cursor.take('[')) {
      spread(cursor, names);
      continue;
    }
    const std::string_view rest = cursor.rest();
    size_t length = 0;
    while (length < rest.size() && is_name(rest[length])) ++length;
    if (length == 0) break;
    for (std::string& name : names) name.append(rest.substr(0, length));
    cursor.skip(length);
  }
  if (cursor.at() == start) throw HostSyntaxError{start, "a host's name is missing"};
  if (names.front().front() == '-')
    throw HostSyntaxError{start, "a host's name does not begin with '-'"};
  return names;
}

// "[fe80::1%eth0]", the brackets left out; empty if it is none.
std::string read_v6(HostCursor& cursor) {
  const std::string_view rest = cursor.rest();
  const size_t close = rest.find(']');
  if (rest.empty() || rest.front() != '[' || close == rest.npos) return "";
  const std::string_view inside = rest.substr(1, close - 1);
  if (inside.find(':') == inside.npos) return "";
  for (size_t i = 0; i < inside.size(); ++i) {
    if (!is_name(inside[i]) && inside[i] != ':' && inside[i] != '%')
      throw HostSyntaxError{cursor.at() + 1 + i, "not an IPv6 address"};
  }
  cursor.skip(close + 1);
  return std::string(inside);
}

// fd00::1 without brackets: its colons would be a port's and the slots'.
void refuse_bare_v6(const HostCursor& cursor) {
  const std::string word = cursor.word(", \t\r@");
  const bool hex =
      word.substr(0, word.find('%')).find_first_not_of("0123456789abcdefABCDEF:.") == word.npos;
  const bool address =
      word.find("::") != word.npos || std::count(word.begin(), word.end(), ':') > 2;
  if (hex && address)
    throw HostSyntaxError{cursor.at(),
                          "an IPv6 address needs brackets, as in [fd00::1] or [fd00::1]:8"};
}

std::string read_user(HostCursor& cursor) {
  const std::string_view rest = cursor.rest();
  const size_t end = rest.find_first_of("@,:[ \t");
  if (end == rest.npos || rest[end] != '@' || rest.substr(end).starts_with("@gpu=")) return "";
  const std::string_view user = rest.substr(0, end);
  if (user.empty()) throw HostSyntaxError{cursor.at(), "a user's name is missing before '@'"};
  check_length("user", user, cursor.at());
  if (user.front() == '-' || !std::all_of(user.begin(), user.end(), is_name))
    throw HostSyntaxError{cursor.at(), fmt::format("'{}' is not a user name", user)};
  cursor.skip(end + 1);
  return std::string(user);
}

// Does a GPU's number, or a range of them, come next, and nothing else before the comma?
bool gpu_follows(std::string_view text) {
  const std::string_view item = text.substr(0, text.find_first_of(", \t"));
  return !item.empty() && is_digit(item.front()) &&
         item.find_first_not_of("0123456789-") == item.npos;
}

}  // namespace

bool HostCursor::take(char c) {
  if (done() || text_[at_] != c) return false;
  ++at_;
  return true;
}

bool HostCursor::take(std::string_view word) {
  if (!rest().starts_with(word)) return false;
  at_ += word.size();
  return true;
}

std::string_view HostCursor::digits() {
  const size_t start = at_;
  while (!done() && is_digit(text_[at_])) ++at_;
  return text_.substr(start, at_ - start);
}

std::string HostCursor::word(std::string_view stops) const {
  return std::string(rest().substr(0, rest().find_first_of(stops)));
}

int HostCursor::number(const char* what, int least, int most) {
  const size_t start = at_;
  const std::string shown = word(", \t:@");
  const std::string_view text = digits();
  const int value = text.size() > kMostDigits ? -1 : value_of(text);
  if (text.empty() || value < least || value > most)
    throw HostSyntaxError{start, fmt::format("{} '{}' is not a whole number from {} to {}", what,
                                             shown, least, most)};
  return value;
}

std::vector<int> HostCursor::gpu_list() {
  std::vector<int> gpus;
  do {
    const size_t start = at_;
    const int first = number("a GPU", 0, kHighestGpu);
    const int last = take('-') ? number("a GPU", 0, kHighestGpu) : first;
    if (first > last)
      throw HostSyntaxError{start, fmt::format("the range {}-{} runs backwards", first, last)};
    for (int gpu = first; gpu <= last; ++gpu) {
      if (std::find(gpus.begin(), gpus.end(), gpu) != gpus.end())
        throw HostSyntaxError{start, fmt::format("GPU {} is named twice", gpu)};
      gpus.push_back(gpu);
    }
    if (next() != ',' || !gpu_follows(rest().substr(1))) return gpus;
    ++at_;
  } while (true);
}

std::vector<HostSpec> read_host_names(HostCursor& cursor) {
  const size_t start = cursor.at();
  HostSpec pattern;
  pattern.user = read_user(cursor);
  refuse_bare_v6(cursor);
  std::vector<std::string> names;
  if (std::string address = read_v6(cursor); !address.empty())
    names.push_back(std::move(address));
  else
    names = read_names(cursor);
  std::vector<HostSpec> hosts;
  hosts.reserve(names.size());
  for (std::string& name : names) {
    check_length("host", name, start);
    if (name.find_first_not_of('.') == name.npos || name.find("..") != name.npos)
      throw HostSyntaxError{start, fmt::format("'{}' is not a host name", name)};
    hosts.push_back(pattern);
    hosts.back().name = std::move(name);
  }
  return hosts;
}

void check_gpus(const HostSpec& host, size_t at) {
  const int gpus = static_cast<int>(host.gpus.size());
  if (gpus != 0 && host.slots != 0 && gpus != host.slots)
    throw HostSyntaxError{at, fmt::format("{} slots, but {} GPU{}: give as many slots as GPUs",
                                          host.slots, gpus, gpus == 1 ? "" : "s")};
}

std::vector<HostSpec> read_host_entry(HostCursor& cursor) {
  const size_t start = cursor.at();
  std::vector<HostSpec> hosts = read_host_names(cursor);
  HostSpec said;
  if (cursor.take(':')) {
    const std::string_view rest = cursor.rest();
    const size_t end = rest.find_first_not_of("0123456789");
    if (end != rest.npos && rest[end] == ':') {
      said.port = cursor.number("port", 1, kHighestPort);
      cursor.take(':');
    }
    said.slots = cursor.number("slots", 1, kMostSlots);
  }
  if (cursor.take("@gpu=")) said.gpus = cursor.gpu_list();
  check_gpus(said, start);
  for (HostSpec& host : hosts) {
    host.port = said.port;
    host.slots = said.slots;
    host.gpus = said.gpus;
  }
  return hosts;
}

}  // namespace smp::hosts
