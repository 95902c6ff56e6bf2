#include "smp/tensorfiles/safetensors/safetensors.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "scratch_folder.h"
#include "smp/plan/files/atomic_file.h"

using namespace smp;
using namespace smp::files;
using namespace smp::safetensors;

namespace {

std::string file_of(const std::string& json, int64_t data_bytes) {
  const uint64_t length = json.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + json + std::string(static_cast<size_t>(data_bytes), 'd');
}

void parse(const std::string& file) {
  parse_safetensors_header("m.safetensors", file, static_cast<int64_t>(file.size()));
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

int64_t files_in(const std::string& folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

std::vector<SafetensorsEntry> three_tensors() {
  return {{"b", DType::kF32, {2, 3}}, {"z", DType::kF64, {}}, {"a", DType::kF32, {0, 5}}};
}

}  // namespace

TEST_CASE(
    "tensors written in any order and in pieces come back, aligned and in the reference's order") {
  const ScratchFolder folder;
  const std::string path = folder / "model.safetensors";
  const float b[6] = {1, 2, 3, 4, 5, 6};
  const double z = 0.5;
  {
    SafetensorsWriter writer(path, three_tensors());
    writer.append("b", b, 16);
    writer.append("z", &z, 8);
    writer.append("b", b + 4, 8);
    CHECK(!std::filesystem::exists(path));
    writer.finish();
  }
  CHECK(files_in(folder.path()) == 1);
  const std::string text = read_text(path);
  CHECK(text.substr(8, 31) == R"({"__metadata__":{"format":"pt"})");
  const SafetensorsReader reader(path);
  CHECK(reader.header().metadata.at("format") == "pt");
  CHECK(reader.header().data_offset % 8 == 0);
  CHECK(reader.header().data_offset + 32 == static_cast<int64_t>(text.size()));
  REQUIRE(reader.header().entries.size() == 3);
  CHECK(reader.header().entries[0].name == "z");
  CHECK(reader.find("b")->shape == std::vector<int64_t>{2, 3});
  CHECK(reader.find("c") == nullptr);
  float read_b[6] = {};
  double read_z = 0;
  reader.read(*reader.find("b"), read_b);
  reader.read(*reader.find("z"), &read_z);
  CHECK(std::memcmp(b, read_b, sizeof b) == 0);
  CHECK(read_z == z);
}

TEST_CASE("a writer that does not finish leaves the old file and nothing else") {
  const ScratchFolder folder;
  const std::string path = folder / "model.safetensors";
  write_file_atomically(path, "old");
  { const SafetensorsWriter writer(path, three_tensors()); }
  CHECK(read_text(path) == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("a file that cannot be written says so, and no temporary stays") {
  CHECK_THROWS_WITH(AtomicFile("/nowhere/model.safetensors"),
                    "cannot write /nowhere/model.safetensors: No such file or directory");
  const ScratchFolder folder;
  const std::string path = folder / "large";
  // A file size limit stands in for a full disk: the same path through write().
  const auto before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  getrlimit(RLIMIT_FSIZE, &limit);
  const rlimit small{4096, limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  std::string error;
  try {
    write_file_atomically(path, std::string(10000, 'x'));
  } catch (const std::runtime_error& failure) {
    error = failure.what();
  }
  setrlimit(RLIMIT_FSIZE, &limit);
  std::signal(SIGXFSZ, before);
  CHECK(error == "cannot write " + path + ": File too large");
  CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("what the reference parser accepts is read") {
  CHECK_NOTHROW(parse(file_of("{}", 0)));
  CHECK_NOTHROW(parse(file_of("{}   ", 0)));
  CHECK_NOTHROW(parse(file_of(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", 1)));
  CHECK_NOTHROW(parse(file_of(R"({"a":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]},)"
                              R"("b":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]}})",
                              4)));
}

TEST_CASE("a cut, forged or broken file is refused with its reason") {
  const auto tensor = [](const std::string& body, int64_t bytes) {
    return file_of("{\"a\":{" + body + "}}", bytes);
  };
  struct Case {
    std::string file;
    const char* error;
  };
  const Case cases[] = {
      {"", "not a safetensors file: 0 bytes; the header length alone takes 8"},
      {"1234567", "not a safetensors file: 7 bytes; the header length alone takes 8"},
      {std::string(8, '\x7f'),
       "the header has 9187201950435737471 bytes; at most 100000000 are allowed"},
      {std::string("\x10\0\0\0\0\0\0\0{}", 10),
       "the file is truncated: its header has 16 bytes, the file 10"},
      {file_of(" {}", 0), "the header does not start with '{'"},
      {file_of("", 0), "the header does not start with '{'"},
      {file_of(R"({"a":{},"a":{}})", 0), "'a' appears twice in the header"},
      {tensor(R"("dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1])", 1),
       "'dtype' appears twice in the header"},
      {file_of(R"({"__metadata__":[]})", 0), "__metadata__ is not an object"},
      {file_of(R"({"__metadata__":{"a":1}})", 0), "__metadata__: the value of 'a' is not a string"},
      {file_of(R"({"a":1})", 0), "tensor 'a': not an object"},
      {tensor(R"("shape":[1],"data_offsets":[0,1])", 1), "tensor 'a': no dtype"},
      {tensor(R"("dtype":"F4","shape":[1],"data_offsets":[0,1])", 1),
       "tensor 'a': unsupported dtype 'F4'; supported are F32, F64, BF16, F16, I32, I64 and U8"},
      {tensor(R"("dtype":"U8","data_offsets":[0,1])", 1), "tensor 'a': no shape"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1],"x":0)", 1),
       "tensor 'a': unknown key 'x'"},
      {tensor(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])", 1),
       "tensor 'a': shape has the element -1; expected an integer of at least 0"},
      {tensor(R"("dtype":"U8","shape":[1.5],"data_offsets":[0,1])", 1),
       "tensor 'a': shape has the element 1.5; expected an integer of at least 0"},
      {tensor(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1])", 1),
       "tensor 'a': shape has the element 18446744073709551615; expected an integer of at least 0"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0])", 1),
       "tensor 'a': data_offsets has 1 values, not 2"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,0])", 1),
       "tensor 'a': the end of its data (0) is before their begin (1)"},
      {tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])", 4),
       "tensor 'a': the size of shape [4294967296, 4294967296] overflows 64 bits"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", 4),
       "tensor 'a': the data have 4 bytes, but F32 [2] takes 8"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])", 2),
       "tensor 'a': its data begin at 1, but the previous tensor's data end at 0"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
               3),
       "tensor 'b': its data begin at 1, but the previous tensor's data end at 2"},
      {file_of(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
               R"("b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
               5),
       "tensor 'b': its data begin at 3, but the previous tensor's data end at 2"},
      {tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])", 2),
       "the tensors take 1 bytes, but the file holds 2"},
      {tensor(R"("dtype":"U8","shape":[2],"data_offsets":[0,2])", 1),
       "the tensors take 2 bytes, but the file holds 1"},
  };
  for (const Case& wrong : cases) {
    CHECK_THROWS_WITH_AS(parse(wrong.file), (std::string("m.safetensors: ") + wrong.error).c_str(),
                         SafetensorsError);
  }
  CHECK_THROWS_AS(parse(file_of("{\"\xff\":{}}", 0)), SafetensorsError);
  CHECK_THROWS_AS(parse(file_of("{} {}", 0)), SafetensorsError);
  CHECK_THROWS_AS(parse(file_of("{", 0)), SafetensorsError);
  CHECK_THROWS_AS(parse(file_of("{" + std::string(100000, '['), 0)), SafetensorsError);
}

TEST_CASE("a missing file is named") {
  CHECK_THROWS_WITH(SafetensorsReader("/nowhere/x"),
                    "/nowhere/x: cannot read: No such file or directory");
}
