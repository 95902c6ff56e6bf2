#include "screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "smp/plan/text/printable.h"

namespace smp {
namespace {

constexpr int64_t kUsualColumns = 80;  // of a terminal that does not say

bool colours_wanted() {
  const char* no_colour = std::getenv("NO_COLOR");
  const char* kind = std::getenv("TERM");
  return (no_colour == nullptr || *no_colour == '\0') && kind != nullptr &&
         std::string_view(kind) != "dumb";
}

}  // namespace

report::Terminal terminal_of(std::FILE* file, bool plain, int64_t width) {
  report::Terminal terminal{.columns = width, .colour = false};
  if (plain) return {.columns = 0, .colour = false};
  const int descriptor = fileno(file);
  if (isatty(descriptor) == 0) return terminal;
  terminal.colour = colours_wanted();
  if (width > 0) return terminal;
  winsize size{};
  const bool known = ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  terminal.columns = known ? size.ws_col : kUsualColumns;
  return terminal;
}

void print(std::FILE* file, const std::string& text) {
  std::fputs(text::printable(text).c_str(), file);
}

void show(std::FILE* file, const std::string& text, const report::Terminal& terminal) {
  const std::string folded = report::fold(text::printable(text), terminal.columns);
  std::fputs((terminal.colour ? report::paint(folded) : folded).c_str(), file);
}

}  // namespace smp
