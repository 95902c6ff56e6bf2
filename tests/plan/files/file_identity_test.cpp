#include "smp/plan/files/file_identity.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "files_and_errors.h"
#include "scratch_folder.h"
#include "smp/plan/base/xxh64.h"

using namespace smp;
using namespace smp::files;

namespace {

void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string long_text() {
  std::string text;
  for (int i = 0; text.size() < 2'000'000; ++i) text += std::to_string(i) + "\n";
  return text;
}

}  // namespace

TEST_CASE("xxh64 gives what xxhsum -H1 prints") {
  CHECK(xxh64("", 0) == 0xef46db3751d8e999);
  CHECK(xxh64("a", 1) == 0xd24ec4f1a98c6e5b);
  CHECK(xxh64("abc", 3) == 0x44bc2cf5ad770999);
  const std::string text = "Nobody inspects the spammish repetition";  // longer than a stripe
  CHECK(xxh64(text.data(), static_cast<int64_t>(text.size())) == 0xfbcea83c8a378bf1);
}

TEST_CASE("a file is told by its size and by its content: first and last bytes, and between them") {
  const ScratchFolder folder;
  const std::string text = long_text(), path = folder / "a";
  put(path, text);
  const FileIdentity before = identify_file(path);
  CHECK(before.name == path);
  CHECK(before.bytes == static_cast<int64_t>(text.size()));
  CHECK(identify_file(path) == before);
  for (const size_t place : {size_t{0}, text.size() / 2, text.size() - 1}) {
    std::string other = text;
    other[place] ^= 1;
    put(path, other);
    const FileIdentity after = identify_file(path);
    CHECK(after.bytes == before.bytes);
    CHECK(after.sampled_hash != before.sampled_hash);
  }
  put(path, text.substr(0, 1'000'000) + std::string(1'000'000, 'x') + text.substr(2'000'000));
  CHECK(identify_file(path).sampled_hash != before.sampled_hash);
  put(path, text);
  CHECK(identify_file(path) == before);
}

TEST_CASE("a short file is read whole, and an empty one is a file") {
  const ScratchFolder folder;
  std::string text(100'000, 'a');
  put(folder / "a", text);
  const FileIdentity before = identify_file(folder / "a");
  text[51'234] = 'b';
  put(folder / "a", text);
  CHECK(identify_file(folder / "a").sampled_hash != before.sampled_hash);
  put(folder / "a", "");
  CHECK(identify_file(folder / "a").bytes == 0);
}

TEST_CASE("what cannot be read is named, and nothing is waited for") {
  const ScratchFolder folder;
  const std::string path = folder / "a";
  CHECK(error_of([&] { identify_file(path); }) ==
        "cannot read '" + path + "': No such file or directory");
  CHECK(error_of([&] { identify_file(folder.path()); }) ==
        "cannot read '" + folder.path() + "': Is a directory");
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  CHECK(error_of([&] { identify_file(path); }) ==
        "cannot read '" + path + "': not a regular file: Invalid argument");
}

TEST_CASE("a stamp changes with a file, also where its size and its time of change are set back") {
  const ScratchFolder folder;
  const std::string path = folder / "a";
  put(path, "abc");
  const auto time = std::filesystem::last_write_time(path);
  const KnownFile before = look_at_file(path);
  put(folder / "b", "xyz");
  std::filesystem::last_write_time(folder / "b", time);
  std::filesystem::rename(folder / "b", path);
  const KnownFile after = look_at_file(path);
  CHECK(after.identity.bytes == before.identity.bytes);
  CHECK(after.stamp != before.stamp);
  CHECK(error_of([&] { check_unchanged(before, path, before.stamp); }) == "no error");
  CHECK(error_of([&] { check_unchanged(before, path, after.stamp); }) ==
        "'" + path + "' has changed since the run began: it had " + text_of(before.identity) +
            ", now " + text_of(after.identity));
}

TEST_CASE("a file that was replaced by the same is no other") {
  const ScratchFolder folder;
  const std::string path = folder / "a";
  put(path, "abc");
  const KnownFile before = look_at_file(path);
  put(folder / "b", "abc");
  std::filesystem::rename(folder / "b", path);
  const KnownFile after = look_at_file(path);
  CHECK(after.stamp != before.stamp);
  CHECK(error_of([&] { check_unchanged(before, path, after.stamp); }) == "no error");
}

TEST_CASE("of many files the sizes of all are looked at, and the content of some") {
  const ScratchFolder folder;
  std::vector<std::string> paths;
  for (int i = 0; i < 600; ++i) {
    paths.push_back(folder / std::to_string(i));
    put(paths.back(), "text");
  }
  const std::vector<KnownFile> before = look_at_files(folder.path(), paths);
  REQUIRE(before.size() == 600);
  CHECK(before[17].identity.name == "17");
  put(paths[301], "text!");
  CHECK(look_at_files(folder.path(), paths)[301].identity != before[301].identity);
  size_t seen = 0;
  for (const std::string& path : paths) put(path, "TEXT");
  const std::vector<KnownFile> after = look_at_files(folder.path(), paths);
  for (size_t i = 0; i < paths.size(); ++i) seen += after[i].identity != before[i].identity;
  CHECK(seen == 256);
  const std::vector<KnownFile> one = look_at_files(folder.path(), {paths[0]});
  CHECK(one[0].identity.sampled_hash == identify_file(paths[0]).sampled_hash);
}
