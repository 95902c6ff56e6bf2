#include <doctest/doctest.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "scratch_folder.h"
#include "smp/launcher/hosts/rank_list.h"
#include "smp/launcher/output/console.h"
#include "smp/launcher/output/job_output.h"
#include "smp/launcher/output/line_fold.h"
#include "smp/launcher/output/rank_template.h"
#include "smp/launcher/process/log_file.h"
#include "smp/launcher/process/output.h"
#include "smp/launcher/process/plain_file.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/system/file_descriptor.h"

using namespace smp;
using namespace smp::hosts;
using namespace smp::job;
using namespace smp::output;
using namespace smp::process;
using namespace smp::system;
using std::chrono::milliseconds;
namespace fs = std::filesystem;

namespace {

std::string text_in(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// "0-3:hello" for each line that is taken.
std::vector<std::string> words_of(const std::vector<LineFold::Folded>& lines) {
  std::vector<std::string> words;
  for (const LineFold::Folded& folded : lines)
    words.push_back(list_of_ranks(folded.ranks) + (folded.stream == Stream::kErr ? "!" : ":") +
                    folded.line.substr(0, folded.line.size() - 1));
  return words;
}

const std::chrono::system_clock::time_point kNoon{std::chrono::seconds(1'795'262'400)};

}  // namespace

TEST_CASE("a log that cannot be opened or written says which and why") {
  CHECK_THROWS_WITH_AS(LogFile("/no/such/folder/x"),
                       "cannot open log '/no/such/folder/x': No such file or directory",
                       std::system_error);
  const ScratchFolder folder;
  const std::string fifo = folder / "fifo";  // that nobody reads
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  CHECK_THROWS_WITH_AS(LogFile{fifo},
                       ("cannot open log '" + fifo + "': No such device or address").c_str(),
                       std::system_error);
  LogFile full("/dev/full");
  CHECK_THROWS_WITH_AS(full.write("x"), "cannot write log '/dev/full': No space left on device",
                       std::system_error);
}

TEST_CASE("what is opened for others is a plain file, and is not waited for") {
  const ScratchFolder folder;
  const std::string fifo = folder / "fifo", file = folder / "file";
  REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  const auto refused = [](const std::string& path, int flags) {
    errno = 0;
    return !open_plain_file(path, flags) && errno == ENXIO;
  };
  CHECK(refused(fifo, O_RDONLY));
  CHECK(refused(fifo, O_WRONLY));
  CHECK(refused("/dev/zero", O_RDONLY));
  CHECK(bool(open_plain_file("/dev/null", O_WRONLY)));
  CHECK(read_plain_file(fifo, 10) == "");
  CHECK(!write_plain_file(fifo, "x"));
  {
    const FileDescriptor both_ends(open(fifo.c_str(), O_RDWR | O_CLOEXEC));
    CHECK(refused(fifo, O_WRONLY));
  }
  CHECK(write_plain_file(file, "longer"));
  CHECK(write_plain_file(file, "text"));
  CHECK(read_plain_file(file, 3) == "tex");
  CHECK(read_plain_file(file, 100) == "text");
  CHECK(!write_plain_file("/dev/full", "x"));
}

TEST_CASE("a line of a log that was cut gets its end before the next") {
  const ScratchFolder folder;
  const std::string path = folder / "log";
  std::ofstream(path) << "one\ntw";  // by a writer that was killed
  {
    LogFile log(path);
    CHECK(text_in(path) == "one\ntw");
    log.write("thr");  // a line in pieces stays one
    log.write("ee\n");
  }
  CHECK(text_in(path) == "one\ntw\nthree\n");
  // A file that may grow no more, as on a full disk, takes a part of a line.
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  LogFile log(path);
  const rlimit little{16, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &little);
  CHECK_THROWS_AS(log.write("four\n"), std::system_error);
  CHECK_THROWS_AS(log.write("five\n"), std::system_error);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  log.write("six\n");
  CHECK(text_in(path) == "one\ntw\nthree\nfou\nsix\n");
}

TEST_CASE("a full log is renamed, whole lines in each, and the oldest go") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/log";
  LogFile log(path, {100, 2});
  std::string all;
  for (int i = 0; i < 60; ++i) {
    const std::string line = fmt::format("line {:03}\n", i);  // 9 bytes, 11 lines in a log
    all += line;
    log.write(line.substr(0, 4));
    log.write(line.substr(4));
  }
  CHECK(!fs::exists(path + ".3"));
  const std::string kept = text_in(path + ".2") + text_in(path + ".1") + text_in(path);
  CHECK(all.ends_with(kept));
  for (const char* old : {"", ".1", ".2"}) {
    const std::string text = text_in(path + old);
    CHECK(text.size() <= 100);
    CHECK(text.starts_with("line "));
    CHECK(text.ends_with("\n"));
  }
}

TEST_CASE("one write of many lines fills several logs: a log of before counts") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/log";
  LogFile(path).write("0123456789\n");
  LogFile(path, {20, 9}).write("aaaaaaa\nbbbbbbbb\ncccccccc\n");
  CHECK(text_in(path + ".1") == "0123456789\naaaaaaa\n");
  CHECK(text_in(path) == "bbbbbbbb\ncccccccc\n");
}

TEST_CASE("a line longer than a log stays whole, up to the longest that is not cut") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/log";
  LogFile log(path, {10, 9});
  log.write(std::string(50, 'a'));
  log.write("b\nc\n");
  CHECK(text_in(path + ".1") == std::string(50, 'a') + "b\n");
  CHECK(text_in(path) == "c\n");
  const std::string longest(3 * LineSplitter::kLongestLine, 'x');
  log.write(longest);
  CHECK(fs::exists(path + ".3"));
  CHECK(fs::file_size(path) <= LineSplitter::kLongestLine + 10);
}

TEST_CASE("no old log is kept when none is wanted") {
  const ScratchFolder folder;
  const std::string path = folder.path() + "/log";
  LogFile log(path, {10, 0});
  for (int i = 0; i < 9; ++i) log.write("12345678\n");
  CHECK(text_in(path) == "12345678\n");
  CHECK(!fs::exists(path + ".1"));
}

TEST_CASE("the words of a rank stand where a template has their places") {
  const RankWords one{{7}, {3}, "node1", Stream::kErr, kNoon + milliseconds(5)};
  const auto fill = [&](const char* text) { return RankTemplate("--prefix", text).fill(one); };
  CHECK(fill("[{rank}] ") == "[7] ");
  CHECK(fill("{host} {rank:04}/{local_rank:02} {stream} {{}}") == "node1 0007/03 err {}");
  CHECK(fill("{time}") == "2026-11-21T12:00:00.005Z");
  CHECK(fill("") == "");
  const RankWords several{{0, 1, 2, 3, 5, 6}, {0, 1}, "3 hosts", Stream::kOut, kNoon};
  CHECK(RankTemplate("--prefix", "{rank:02} {local_rank} {host}|").fill(several) ==
        "00-03,05,06 0,1 3 hosts|");
  CHECK(RankTemplate("x", "{rank}{time}").has(RankTemplate::Field::kTime));
  CHECK(!RankTemplate("x", "{rank}").has(RankTemplate::Field::kStream));
}

TEST_CASE("a template that is broken says where") {
  const auto why = [](const char* text) {
    try {
      const RankTemplate broken("--prefix", text);
    } catch (const ConfigError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(why("{rang}") ==
        "--prefix '{rang}': unknown field 'rang'; the fields are {rank}, {local_rank}, {host}, "
        "{stream}, {time}");
  CHECK(why("a {rank") == "--prefix 'a {rank': unmatched '{': write {{ for a brace");
  CHECK(why("a}") == "--prefix 'a}': unmatched '}': write }} for a brace");
  CHECK(why("{host:04}") ==
        "--prefix '{host:04}': 'host:04': only numbers can have a width, as in {rank:04}");
  CHECK(why("{rank:4}") ==
        "--prefix '{rank:4}': 'rank:4': only numbers can have a width, as in {rank:04}");
}

TEST_CASE("lists of ranks with steps, and the last one") {
  CHECK(parse_rank_list("last", 9) == std::set<int>{8});
  CHECK(parse_rank_list("0-last:4", 9) == std::set<int>{0, 4, 8});
  CHECK(parse_rank_list("1-6:2,0", 9) == std::set<int>{0, 1, 3, 5});
  for (const char* broken : {"3:2", "0-3:0", "0-3:", "0-3:x", "first"})
    CHECK_THROWS_AS(parse_rank_list(broken, 9), ConfigError);
}

TEST_CASE("lines that all ranks write are one: the order of each rank's lines stays") {
  const LineFold::Clock::time_point now{std::chrono::hours(1)};
  LineFold fold(3);
  fold.feed(0, Stream::kOut, "a\nb\n", kNoon, now);
  fold.feed(1, Stream::kOut, "a\nb\n", kNoon, now);
  CHECK(fold.take(now).empty());
  CHECK(fold.due() == now + LineFold::kWindow);
  fold.feed(2, Stream::kOut, "a\n", kNoon, now);
  CHECK(words_of(fold.take(now)) == std::vector<std::string>{"0-2:a"});
  CHECK(words_of(fold.take(now + LineFold::kWindow)) == std::vector<std::string>{"0,1:b"});
  CHECK(!fold.due());

  fold.feed(0, Stream::kOut, "a\nb\n", kNoon, now);
  fold.feed(1, Stream::kOut, "b\na\n", kNoon, now);  // a behind b: not the a that stands before
  fold.feed(2, Stream::kErr, "b\n", kNoon, now);     // another stream
  CHECK(words_of(fold.take(now, true)) == std::vector<std::string>{"0:a", "0,1:b", "1:a", "2!b"});
  fold.feed(0, Stream::kOut, "a\na\n", kNoon, now);
  fold.feed(1, Stream::kOut, "a\n", kNoon, now);
  CHECK(words_of(fold.take(now, true)) == std::vector<std::string>{"0,1:a", "0:a"});
}

TEST_CASE("folding keeps no more than its limit") {
  const LineFold::Clock::time_point now{std::chrono::hours(1)};
  LineFold fold(2);
  const std::string line(LineFold::kMostWaitingBytes / 4, 'x');
  for (int i = 0; i < 8; ++i) fold.feed(0, Stream::kOut, line + fmt::format("{}\n", i), kNoon, now);
  CHECK(fold.take(now).size() == 5);
}

TEST_CASE("a job's output: rank logs as they come, host logs and console in whole lines") {
  const ScratchFolder folder;
  LaunchJob job;
  job.commands.resize(3, Command{{"x"}, {}, ""});
  job.files.resize(3);
  job.hosts = {"a", "b"};
  job.host_of_rank = {0, 0, 1};
  job.output.shown_ranks = {0, 2};
  job.output.prefix = "{host}{local_rank} {time} ";
  job.output.host_logs = {folder.path() + "/algo-1.log", folder.path() + "/algo-2.log"};
  for (int rank = 0; rank < 3; ++rank) {
    job.files[rank].out_log = folder.path() + fmt::format("/{}.out", rank);
    job.files[rank].err_log = folder.path() + fmt::format("/{}.err", rank);
  }
  const std::string at = "2026-11-21T12:00:00.000Z ";
  const auto run = [&] {
    const std::string shown = folder.path() + "/console";
    const FileDescriptor file(open(shown.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    Console console(file.number(), file.number());
    JobOutput output(job, console);
    output.take(0, Stream::kOut, "one\r\ntw", kNoon);
    output.take(1, Stream::kErr, "three\n", kNoon);
    output.take(2, Stream::kOut, "one\n", kNoon);
    output.take(0, Stream::kOut, "o\n", kNoon);
    output.flush();
    REQUIRE(output.wait_for_logs(milliseconds(60'000)));
    console.flush(milliseconds(2000));
    CHECK(output.last_error_lines(1, 9) == std::vector<std::string>{"three"});
    return text_in(shown);
  };
  SUBCASE("plain") {
    CHECK(run() == "a0 " + at + "one\nb0 " + at + "one\na0 " + at + "two\n");
    CHECK(text_in(folder.path() + "/0.out") == "one\r\ntwo\n");
    CHECK(text_in(folder.path() + "/1.err") == "three\n");
    CHECK(text_in(folder.path() + "/algo-1.log") ==
          "a0 " + at + "one\na1 " + at + "three\na0 " + at + "two\n");
    CHECK(text_in(folder.path() + "/algo-2.log") == "b0 " + at + "one\n");
  }
  SUBCASE("folded") {
    job.output.fold = true;
    CHECK(run() == "2 hosts0 " + at + "one\na0 " + at + "two\n");
  }
  SUBCASE("coloured") {
    job.output.coloured = true;
    CHECK(run().starts_with("\x1b[31ma0 " + at + "\x1b[0mone\n\x1b[33mb0 "));
    CHECK(text_in(folder.path() + "/algo-2.log") == "b0 " + at + "one\n");
  }
}
