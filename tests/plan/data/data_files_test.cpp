#include "smp/plan/data/data_files.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "scratch_folder.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/unreadable.h"

using namespace smp;
using namespace smp::data;
using namespace smp::files;

namespace {

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

DataFiles find(const std::string& path, std::vector<std::string> suffixes = {},
               int64_t sequence_length = 4) {
  TrainingSpec training;
  training.data_path = path;
  training.data_suffixes = std::move(suffixes);
  training.sequence_length = sequence_length;
  return find_data_files(training);
}

std::vector<std::string> names(const DataFiles& found, const ScratchFolder& folder) {
  std::vector<std::string> names;
  for (const DataFile& file : found.files) {
    names.push_back(std::filesystem::relative(file.path, folder.path()).string());
  }
  return names;
}

}  // namespace

TEST_CASE("a folder's files are listed by path, with one 0 byte between two in the total") {
  const ScratchFolder folder;
  std::filesystem::create_directories(folder / "b");
  std::filesystem::create_directories(folder / ".hidden");
  write(folder / "b/2.txt", "22");
  write(folder / "b/1.py", "1");
  write(folder / "a.txt", "aaaa");
  write(folder / "empty.txt", "");
  write(folder / ".hidden/x.txt", "x");
  write(folder / ".x.txt", "x");
  std::filesystem::create_symlink("nowhere", folder / "dangling.txt");
  std::filesystem::create_directory_symlink("b", folder / "link");
  const DataFiles all = find(folder.path());
  CHECK(names(all, folder) == std::vector<std::string>{"a.txt", "b/1.py", "b/2.txt"});
  CHECK(all.total_bytes == 4 + 1 + 1 + 1 + 2);
  CHECK(names(find(folder.path(), {".txt"}), folder) ==
        std::vector<std::string>{"a.txt", "b/2.txt"});
}

TEST_CASE("one file is a text of its own, whatever its suffix") {
  const ScratchFolder folder;
  write(folder / "book", "12345");
  const DataFiles found = find(folder / "book", {".txt"});
  CHECK(found.total_bytes == 5);
  CHECK(found.files.size() == 1);
}

TEST_CASE("a Git LFS pointer is no text to train on") {
  const ScratchFolder folder;
  write(folder / "a.txt", "some text that is long enough");
  write(folder / "b.txt",
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n");
  for (const std::string& path : {folder.path(), folder / "b.txt"}) {
    CHECK_THROWS_WITH_AS(find(path),
                         ("training.data.path: " + (folder / "b.txt") +
                          ": this is a Git LFS pointer to 12345 bytes, not the file itself; run "
                          "git lfs pull")
                             .c_str(),
                         ConfigError);
  }
}

TEST_CASE("data that cannot be trained on are refused by name") {
  const ScratchFolder folder;
  const std::string path = folder.path();
  const auto refuses = [](const std::string& data, std::vector<std::string> suffixes,
                          int64_t length, const std::string& error) {
    CHECK_THROWS_WITH_AS(find(data, std::move(suffixes), length),
                         ("training.data.path: " + error).c_str(), ConfigError);
  };
  CHECK_THROWS_WITH_AS(find(""),
                       "training.data.path: no training data given: name a file or a folder of "
                       "text or tokens, or python-stdlib",
                       ConfigError);
  refuses(path + "/none", {}, 4, path + "/none does not exist");
  refuses(path, {}, 4, path + " holds no text");
  refuses(path, {".a", ".b"}, 4, path + " holds no text in files ending in .a, .b");
  write(folder / "empty", "");
  refuses(path + "/empty", {}, 4, path + "/empty holds no text");
  write(folder / "short", "1234");
  if (::geteuid() == 0) {
    MESSAGE("root reads every file: the unreadable one is not tried");
    return;
  }
  std::filesystem::permissions(folder / "short", std::filesystem::perms::none);
  refuses(path, {}, 4, "cannot read " + path + "/short: Permission denied");
}

TEST_CASE(
    "python-stdlib is the source of the standard library, without what was installed beside") {
  const DataFiles found = find("python-stdlib");
  CHECK(found.total_bytes > 5'000'000);
  bool has_argparse = false;
  for (const DataFile& file : found.files) {
    CHECK(file.path.ends_with(".py"));
    CHECK(file.path.find("-packages/") == std::string::npos);
    has_argparse |= file.path.ends_with("/argparse.py");
  }
  CHECK(has_argparse);
}

TEST_CASE("python-stdlib without a python3 is refused with what to do") {
  const char* const before = std::getenv("PATH");
  const std::string path = before != nullptr ? before : "";
  ::setenv("PATH", "/nowhere", 1);
  CHECK_THROWS_WITH_AS(find("python-stdlib"),
                       "training.data.path: python-stdlib needs python3 on PATH, but python3 did "
                       "not run: install it, or give a file or a folder of text",
                       ConfigError);
  ::setenv("PATH", path.c_str(), 1);
}

TEST_CASE("byte tokens need a vocabulary of 256") {
  ModelSpec model;
  model.vocab_size = 255;
  CHECK_THROWS_WITH_AS(check_byte_vocabulary(model),
                       "model.vocab_size: 255 is too small for byte tokens: give at least 256",
                       ConfigError);
  model.vocab_size = 256;
  CHECK_NOTHROW(check_byte_vocabulary(model));
}

TEST_CASE(
    "a file that a job names wrongly is its fault: one that the machine does not bring is not") {
  for (const int error : {ENOENT, ENOTDIR, EISDIR, EACCES, ELOOP})
    CHECK_THROWS_AS(throw_unreadable("cannot read x", error), ConfigError);
  for (const int error : {EIO, ESTALE, ETIMEDOUT, EMFILE, ENOMEM, EREMOTEIO})
    CHECK_THROWS_AS(throw_unreadable("cannot read x", error), std::system_error);
  CHECK_THROWS_WITH(throw_unreadable("cannot read x", ENOENT),
                    "cannot read x: No such file or directory");
  CHECK_THROWS_WITH(throw_unreadable("cannot read x", EIO), "cannot read x: Input/output error");
}
