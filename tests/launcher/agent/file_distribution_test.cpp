#include "smp/launcher/agent/file_distribution.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "agent/agent_messages.h"
#include "agent/file_messages.h"
#include "agent/received_folder.h"
#include "agent/send_window.h"
#include "scratch_folder.h"
#include "smp/launcher/agent/shared_file.h"
#include "smp/launcher/reach/frame_channel.h"

using namespace smp;
using namespace smp::agent;
using namespace smp::reach;
namespace fs = std::filesystem;

namespace {

std::vector<std::string> messages_of(const std::vector<FileToSend>& files) {
  FileSource source(files);
  std::vector<std::string> messages;
  while (const auto message = source.next()) messages.push_back(*message);
  return messages;
}

bool take_all(ReceivedFolder& folder, const std::vector<std::string>& messages) {
  bool all = false;
  for (const std::string& message : messages) all = folder.take(message);
  return all;
}

std::string file_message(const std::string& name) {
  return wire::PayloadWriter()
      .number(static_cast<uint64_t>(FileMessage::kFile))
      .text(name)
      .number(1)
      .number(0)
      .bytes();
}

}  // namespace

TEST_CASE("a pushed file is there when it is whole, and as it was sent") {
  const ScratchFolder scratch;
  std::ofstream(scratch / "a") << std::string(600'000, 'a') << "end";
  const std::vector<std::string> messages = messages_of({{scratch / "a", "x/y"}});
  REQUIRE(messages.size() == 7);  // room, file, 3 parts, end, all

  ReceivedFolder folder(scratch / "there");
  for (size_t i = 0; i < 5; ++i) CHECK(!folder.take(messages[i]));
  CHECK(!fs::exists(scratch / "there/x/y"));
  CHECK(!folder.take(messages[5]));
  CHECK(fs::file_size(scratch / "there/x/y") == 600'003);
  CHECK((fs::status(scratch / "there").permissions() & fs::perms::mask) == fs::perms::owner_all);
  CHECK((fs::status(scratch / "there/x/y").permissions() & fs::perms::mask) ==
        (fs::perms::owner_read | fs::perms::owner_write));
  CHECK(folder.take(messages[6]));
  folder.remove();
  CHECK(!fs::exists(scratch / "there"));
}

TEST_CASE("a pushed file that arrives otherwise is refused") {
  const ScratchFolder scratch;
  std::ofstream(scratch / "a") << "abc";
  std::vector<std::string> messages = messages_of({{scratch / "a", "a"}});
  messages[2].back() = 'x';
  ReceivedFolder changed(scratch / "changed");
  CHECK_THROWS_WITH_AS(take_all(changed, messages), "'a' arrived with other bytes than were sent",
                       FilesRefused);
  messages.erase(messages.begin() + 2);
  ReceivedFolder cut(scratch / "cut");
  CHECK_THROWS_WITH_AS(take_all(cut, messages), "'a' arrived with other bytes than were sent",
                       FilesRefused);
  CHECK(!fs::exists(scratch / "cut/a"));
}

TEST_CASE("nothing is written outside the folder, nor more than was announced") {
  const ScratchFolder scratch;
  const std::string room = wire::PayloadWriter().number(0).number(1).bytes();
  for (const char* name : {"../x", "/x", "a/../../x", "", "a/", "a/.."}) {
    ReceivedFolder folder(scratch / "there");
    folder.take(room);
    CHECK_THROWS_WITH_AS(folder.take(file_message(name)), "a file with a wrong name",
                         wire::ProtocolError);
  }
  ReceivedFolder folder(scratch / "there");
  CHECK_THROWS_WITH_AS(folder.take(file_message("x")), "a file before the room for it",
                       wire::ProtocolError);
  folder.take(room);
  folder.take(file_message("x"));
  const std::string part = wire::PayloadWriter().number(2).text("two").bytes();
  CHECK_THROWS_WITH_AS(folder.take(part), "bytes of no file", wire::ProtocolError);
}

TEST_CASE("a pushed file that cannot be written whole, or has no folder, is refused") {
  const ScratchFolder scratch;
  std::ofstream(scratch / "a") << "abc";
  ReceivedFolder folder(scratch / "there");
  std::vector<std::string> messages = messages_of({{scratch / "a", "a"}});
  for (size_t i = 0; i < 3; ++i) folder.take(messages[i]);
  const std::string part = scratch / "there/a.part";
  // As a file system that fails when the file is closed: it is closed already.
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    if (fs::read_symlink(entry.path(), error) != part) continue;
    REQUIRE(close(std::stoi(entry.path().filename())) == 0);
    break;
  }
  CHECK_THROWS_WITH_AS(folder.take(messages[3]),
                       ("cannot write '" + part + "': Bad file descriptor").c_str(), FilesRefused);
  CHECK(!fs::exists(scratch / "there/a"));

  ReceivedFolder other(scratch / "other");
  messages = messages_of({{scratch / "a", "a"}});
  for (size_t i = 0; i < 4; ++i) other.take(messages[i]);
  CHECK_THROWS_WITH_AS(
      other.take(file_message("a/b")),
      ("cannot make folder '" + (scratch / "other/a") + "': Not a directory").c_str(),
      FilesRefused);
}

TEST_CASE("as many messages run ahead of the slowest host as 1 MiB holds, and 256 at most") {
  const auto sent_before_full = [](SendWindow& window, size_t bytes) {
    size_t messages = 0;
    for (; window.has_room(); ++messages) window.sent(bytes);
    return messages;
  };
  SendWindow parts, short_ones;
  CHECK(parts.is_empty());
  CHECK(sent_before_full(parts, 256 << 10) == 4);
  parts.taken(1);
  CHECK(sent_before_full(parts, 256 << 10) == 1);
  parts.taken(3);
  parts.taken(2);  // known already
  CHECK(sent_before_full(parts, 256 << 10) == 2);
  CHECK(!parts.is_empty());
  parts.taken(~uint64_t{0});
  CHECK(parts.is_empty());
  CHECK(sent_before_full(short_ones, 10) == 256);
  short_ones.taken(200);
  CHECK(sent_before_full(short_ones, 10) == 200);
}

TEST_CASE("files that do not fit are refused before the first") {
  const ScratchFolder scratch;
  ReceivedFolder folder(scratch / "there");
  const std::string room = wire::PayloadWriter().number(0).number(uint64_t{1} << 62).bytes();
  CHECK_THROWS_AS(folder.take(room), FilesRefused);
  CHECK_THROWS_WITH_AS(ReceivedFolder("").take(room), "this host takes no files", FilesRefused);
}

TEST_CASE("a file that a host lacks, or has otherwise, is named") {
  const ScratchFolder scratch;
  const std::string path = scratch / "plan.yaml";
  std::ofstream(path) << "one";
  const SharedFile file = shared_with_content(path);
  CHECK(why_not_shared({file, {scratch.path()}}) == "");
  std::ofstream(path) << "two";
  CHECK(why_not_shared({file}) ==
        "'" + path +
            "' differs on this host: the ranks of a plan share the run folder: give a --run-dir in "
            "a file system that all hosts mount; data and weights can be there too, or be sent "
            "with --push");
  fs::remove(path);
  CHECK(why_not_shared({file}).starts_with(
      "it cannot read '" + path + "' of the launching host (No such file or directory): "));
}
