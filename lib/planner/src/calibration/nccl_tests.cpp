#include "smp/planner/calibration/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

#include "smp/plan/base/errors.h"
#include "smp/plan/jobfile/job_reader.h"
#include "smp/plan/text/yaml_tree.h"

namespace smp::calibration {
namespace {

// busbw / algbw is printed with two digits behind the point.
constexpr double kRounding = 0.02;

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream in(line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

template <class T>
std::optional<T> number_of(const std::string& word) {
  T value{};
  const char* end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  return value;
}

// Lines that a launcher marks with their rank: "[1,0]<stdout>:" of mpirun --tag-output, "0: " of
// srun --label, "[0] " of MPICH's mpiexec -l. Nothing for what is no output of the test: standard
// error, and what NCCL_DEBUG prints.
std::optional<std::string> own_text(const std::string& line) {
  if (line.find(" NCCL INFO ") != line.npos || line.find(" NCCL WARN ") != line.npos) {
    return std::nullopt;
  }
  const size_t begin = line.find_first_not_of(' ');
  if (begin == line.npos) return line;
  if (line[begin] == '[') {
    if (line.find("]<stderr>") < line.find("]<stdout>")) return std::nullopt;
    constexpr std::string_view kTag = "]<stdout>:";
    if (const size_t tag = line.find(kTag); tag != line.npos) return line.substr(tag + kTag.size());
    const size_t close = line.find_first_not_of("0123456789", begin + 1);
    if (close != line.npos && close > begin + 1 && line.compare(close, 2, "] ") == 0)
      return line.substr(close + 2);
    return line;
  }
  const size_t end = line.find_first_not_of("0123456789", begin);
  if (end != line.npos && end > begin && line.compare(end, 2, ": ") == 0)
    return line.substr(end + 2);
  return line;
}

class Reader {
 public:
  explicit Reader(const std::string& path) {
    table_.path = path;
    table_.source = "nccl-tests, all_reduce_perf, out of place: " + path;
  }

  void read(const std::string& line) {
    ++line_;
    const std::optional<std::string> own = own_text(line);
    if (!own) return;
    const std::vector<std::string> words = words_of(*own);
    if (words.empty()) return;
    if (words[0][0] == '#') {
      comment(words);
    } else {
      row(words);
    }
  }

  NcclTable finish() {
    if (ranks_.empty()) {
      throw ConfigError(fmt::format(
          "{}: no line '# Rank 0 ... on HOST device 0': the file is not an output of nccl-tests",
          table_.path));
    }
    if (points_.empty()) throw ConfigError(fmt::format("{}: no measured size", table_.path));
    for (const auto& [bytes, point] : points_) table_.points.push_back(point);
    return std::move(table_);
  }

 private:
  [[noreturn]] void refuse(const std::string& problem) const {
    throw ConfigError(fmt::format("{}:{}: {}", table_.path, line_, problem));
  }

  // "#  Rank  0 Group  0 Pid  9228 on  host-1 device  0 [0x10] NVIDIA A100", the columns' names,
  // and in newer versions "# Collective test starting: all_reduce_perf".
  void comment(std::vector<std::string> words) {
    if (words[0] == "#") {
      words.erase(words.begin());
    } else {
      words[0].erase(0, 1);
    }
    if (words.empty()) return;
    if (words[0] == "Rank") {
      const auto on = std::find(words.begin(), words.end(), "on");
      const auto rank = words.size() > 1 ? number_of<int64_t>(words[1]) : std::nullopt;
      if (!rank || on == words.end() || on + 1 == words.end()) {
        refuse("a line of a rank must read '# Rank N ... on HOST device D'");
      }
      if (!ranks_.insert(*rank).second) refuse(fmt::format("rank {} appears twice", *rank));
      const auto group = std::find(words.begin(), on, "Group");
      if (group != on && group + 1 != on && *(group + 1) != group_) {
        if (!group_.empty()) {
          refuse(
              "the ranks form several groups: measure one group of all ranks, without "
              "NCCL_TESTS_SPLIT");
        }
        group_ = *(group + 1);
      }
      hosts_.insert(*(on + 1));
      table_.ranks = static_cast<int64_t>(ranks_.size());
      table_.hosts = static_cast<int64_t>(hosts_.size());
    } else if (words[0] == "size") {
      const auto time = std::find(words.begin(), words.end(), "time");
      if (time == words.end() || words.end() - time < 3 || *(time + 1) != "algbw" ||
          *(time + 2) != "busbw") {
        refuse("the columns must be size ... time algbw busbw");
      }
      time_column_ = static_cast<size_t>(time - words.begin());
    } else if (words[0] == "Collective" && words.back().ends_with("_perf") &&
               words.back() != "all_reduce_perf") {
      refuse(
          fmt::format("this is {}; the points of a cluster are of all_reduce_perf", words.back()));
    }
  }

  void row(const std::vector<std::string>& words) {
    if (time_column_ == 0 && !number_of<double>(words[0])) {
      refuse(
          fmt::format("{} begins neither a comment (#) nor a measured size: keep the lines of "
                      "all_reduce_perf alone, as UTF-8",
                      text::quoted_for_message(words[0])));
    }
    if (time_column_ == 0) refuse("a measured size before the line of column names");
    if (ranks_.size() < 2) refuse("a measured size of fewer than 2 ranks");
    if (words.size() < time_column_ + 3) {
      refuse(fmt::format("{} columns where {} are needed", words.size(), time_column_ + 3));
    }
    const auto bytes = number_of<int64_t>(words[0]);
    if (!bytes || *bytes < 0) refuse(fmt::format("size '{}' is not a number of bytes", words[0]));
    std::array<double, 3> values{};  // time, algbw, busbw
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& word = words[time_column_ + i];
      const auto value = number_of<double>(word);
      if (!value || !std::isfinite(*value) || *value < 0) {
        refuse(fmt::format("{} '{}' is not a number",
                           i == 0   ? "time"
                           : i == 1 ? "algbw"
                                    : "busbw",
                           word));
      }
      values[i] = *value;
    }
    if (*bytes == 0) return;  // nccl-tests print a size of 0 where it is smaller than the ranks
    if (values[0] <= 0) refuse("a time of 0");
    // 2 (n - 1) / n of the algorithm's bandwidth: no other collective has that.
    const double ranks = static_cast<double>(ranks_.size());
    const double expected = values[1] * 2 * (ranks - 1) / ranks;
    if (values[1] > 1 && std::abs(values[2] / expected - 1) > kRounding) {
      refuse(
          fmt::format("busbw {} is not 2 x {} / {} of algbw {}: the file is not of all_reduce_perf",
                      values[2], ranks_.size() - 1, ranks_.size(), values[1]));
    }
    // "#wrong", where results were checked: "N/A" where they were not.
    const std::string wrong = words.size() > time_column_ + 3 ? words[time_column_ + 3] : "0";
    if (const auto count = number_of<double>(wrong); count && *count != 0) {
      refuse(
          fmt::format("{} results are wrong: repair the all-reduce of this machine first", wrong));
    }
    points_[*bytes] = {table_.ranks, *bytes, values[0] * 1e-6, mesh::CollectiveOp::kAllReduce};
  }

  NcclTable table_;
  int64_t line_ = 0;
  size_t time_column_ = 0;
  std::set<int64_t> ranks_;
  std::set<std::string> hosts_;
  std::string group_;
  std::map<int64_t, LinkPoint> points_;
};

// Lines of `text` without the value of `key` in the section cluster.
std::vector<std::string> lines_without(const std::vector<std::string>& lines,
                                       const std::string& key) {
  std::vector<std::string> kept;
  size_t dropped_indent = 0;
  bool dropping = false;
  for (const std::string& line : lines) {
    const size_t indent = line.find_first_not_of(' ');
    if (dropping && (indent == std::string::npos || indent > dropped_indent ||
                     (indent == dropped_indent && line[indent] == '-'))) {
      continue;
    }
    dropping = indent != std::string::npos && line.compare(indent, key.size() + 1, key + ":") == 0;
    dropped_indent = indent;
    if (!dropping) kept.push_back(line);
  }
  return kept;
}

std::string line_of(const LinkPoint& point, const std::string& indent) {
  const bool is_default = point.op == LinkPoint{}.op;
  return fmt::format("{}  - {{ranks: {}, bytes: {}, seconds: {:.9g}{}{}}}", indent, point.ranks,
                     point.bytes, point.seconds,
                     is_default ? "" : ", op: ", is_default ? "" : name_of(point.op));
}

// The tables of one host, or of several, and those points of `had` of whose call, by as many ranks,
// none of them has any; empty without such tables.
std::vector<std::string> block_of(const std::string& key, const std::vector<NcclTable>& tables,
                                  bool one_host, const std::vector<LinkPoint>& had,
                                  const std::string& indent) {
  std::vector<std::string> lines;
  std::set<std::pair<int64_t, mesh::CollectiveOp>> measured;
  for (const NcclTable& table : tables) {
    if ((table.hosts == 1) != one_host) continue;
    lines.push_back(fmt::format("{}  # {}", indent, table.source));
    for (const LinkPoint& point : table.points) {
      measured.emplace(point.ranks, point.op);
      lines.push_back(line_of(point, indent));
    }
  }
  if (lines.empty()) return lines;
  std::vector<std::string> block = {indent + key + ":"};
  for (const LinkPoint& point : had) {
    if (measured.contains({point.ranks, point.op})) continue;
    if (block.size() == 1) block.push_back(indent + "  # measured before");
    block.push_back(line_of(point, indent));
  }
  block.insert(block.end(), lines.begin(), lines.end());
  return block;
}

// The section cluster of a file, line by line.
class ClusterLines {
 public:
  explicit ClusterLines(const jobfile::JobSource& cluster) : path_(cluster.path) {
    std::istringstream in(cluster.text);
    for (std::string line; std::getline(in, line);) lines_.push_back(line);
    const auto section = std::find_if(lines_.begin(), lines_.end(), [](const std::string& line) {
      return line.starts_with("cluster:");
    });
    if (section == lines_.end() || section + 1 == lines_.end())
      throw ConfigError(fmt::format("{}: section 'cluster' is missing", path_));
    begin_ = static_cast<size_t>(section - lines_.begin()) + 1;
    indent_ = std::string(lines_[begin_].find_first_not_of(' '), ' ');
  }

  const std::string& indent() const { return indent_; }

  // `block` takes the place of the key's value, at the section's end.
  void replace(const std::string& key, const std::vector<std::string>& block) {
    lines_ = lines_without(lines_, key);
    size_t end = begin_;  // behind the section's last line
    for (size_t i = begin_; i < lines_.size(); ++i) {
      if (!lines_[i].empty() && lines_[i][0] != ' ' && lines_[i][0] != '#') break;
      if (!lines_[i].empty() && lines_[i][0] == ' ') end = i + 1;
    }
    lines_.insert(lines_.begin() + static_cast<std::ptrdiff_t>(end), block.begin(), block.end());
  }

  // Refuses what is no cluster file.
  std::string text() const {
    std::string text;
    for (const std::string& line : lines_) text += line + "\n";
    (void)read_cluster({path_, text});
    return text;
  }

 private:
  const std::string path_;
  std::vector<std::string> lines_;
  size_t begin_ = 0;
  std::string indent_;
};

}  // namespace

NcclTable parse_nccl_tests(const std::string& path, const std::string& text) {
  Reader reader(path);
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) reader.read(line);
  return reader.finish();
}

ClusterSpec read_cluster(const jobfile::JobSource& cluster) {
  const jobfile::JobSource model{
      "", "model: {num_layers: 1, hidden_size: 8, num_heads: 1, vocab_size: 2}"};
  return jobfile::read_job({model, cluster}).cluster;
}

std::string with_link_points(const jobfile::JobSource& cluster,
                             const std::vector<NcclTable>& tables) {
  std::map<std::pair<bool, int64_t>, std::string> seen;
  for (const NcclTable& table : tables) {
    const auto [other, first] = seen.emplace(std::pair(table.hosts == 1, table.ranks), table.path);
    if (!first) {
      throw ConfigError(fmt::format(
          "{}: measures {} ranks on {}, as {} does: leave one of the two out", table.path,
          table.ranks, table.hosts == 1 ? "one host" : "several hosts", other->second));
    }
  }
  ClusterLines lines(cluster);
  const ClusterSpec had = read_cluster(cluster);
  for (const bool one_host : {true, false}) {
    const std::string key = one_host ? "intra_host_points" : "inter_host_points";
    const std::vector<std::string> block =
        block_of(key, tables, one_host, one_host ? had.intra_host_points : had.inter_host_points,
                 lines.indent());
    if (!block.empty()) lines.replace(key, block);
  }
  return lines.text();
}

std::string with_link_constants(const jobfile::JobSource& cluster,
                                const std::vector<LinkConstant>& constants) {
  ClusterLines lines(cluster);
  for (const LinkConstant& constant : constants)
    lines.replace(constant.key, {fmt::format("{}{}: {:.9g}  # {}", lines.indent(), constant.key,
                                             constant.value, constant.source)});
  return lines.text();
}

}  // namespace smp::calibration
