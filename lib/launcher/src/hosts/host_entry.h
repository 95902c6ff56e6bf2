#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "smp/launcher/hosts/host_spec.h"

namespace smp::hosts {

// Where a text of hosts is read, and what is wrong there.
struct HostSyntaxError {
  size_t at = 0;  // byte of the text
  std::string message;
};

// A text and how far it is read.
class HostCursor {
 public:
  explicit HostCursor(std::string_view text) : text_(text) {}
  size_t at() const { return at_; }
  bool done() const { return at_ == text_.size(); }
  char next() const { return done() ? '\0' : text_[at_]; }
  bool take(char c);
  bool take(std::string_view word);
  std::string_view rest() const { return text_.substr(at_); }
  void skip(size_t bytes) { at_ += bytes; }

  // Digits, as they are written; empty if there are none.
  std::string_view digits();
  // A whole number from `least` to `most`. Throws HostSyntaxError with `what` it is.
  int number(const char* what, int least, int most);
  // "0,2-4", up to a comma behind which no number follows.
  std::vector<int> gpu_list();
  // The next characters up to one of `stops`, for messages.
  std::string word(std::string_view stops = ", \t") const;

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// [user@]name, with ranges spread: one host each.
std::vector<HostSpec> read_host_names(HostCursor& cursor);

// [user@]name[[:port]:slots][@gpu=list], with ranges spread: one host each.
std::vector<HostSpec> read_host_entry(HostCursor& cursor);

// Throws HostSyntaxError when slots and GPUs of a host are both said and differ.
void check_gpus(const HostSpec& host, size_t at);

}  // namespace smp::hosts
