#include "smp/plan/system/host_cache.h"

#include <doctest/doctest.h>

#include <fstream>

#include "files_and_errors.h"
#include "scratch_folder.h"

using namespace smp;
using namespace smp::system;

namespace {

const HostKey kKey{"products", "AMD EPYC", 2, "torch-2.11.0", "ONEDNN_MAX_CPU_ISA=AVX2"};

}  // namespace

TEST_CASE("a stored measurement is read by its own key alone") {
  const ScratchFolder folder;
  const std::string path = folder / "new/folder/file.json";
  std::string note;
  CHECK(!read_stored(path, kKey, note));
  CHECK(note.empty());
  store(path, kKey, {"2026-11-30", "{\"a\":1}\n{\"b\":2}\n"});
  const auto stored = read_stored(path, kKey, note);
  REQUIRE(stored.has_value());
  CHECK(stored->date == "2026-11-30");
  CHECK(stored->lines == "{\"a\":1}\n{\"b\":2}\n");
  for (const HostKey& other : {HostKey{"host", kKey.cpu, 2, kKey.build, kKey.settings},
                               HostKey{"products", "Intel", 2, kKey.build, kKey.settings},
                               HostKey{"products", kKey.cpu, 3, kKey.build, kKey.settings},
                               HostKey{"products", kKey.cpu, 2, "torch-2.12.0", kKey.settings},
                               HostKey{"products", kKey.cpu, 2, kKey.build, ""}}) {
    note.clear();
    CHECK(!read_stored(path, other, note));
    CHECK(!note.empty());
  }
}

TEST_CASE("a stored measurement that is cut or nobody's is ignored with a note") {
  const ScratchFolder folder;
  const std::string path = folder / "file.json";
  for (const std::string text : {"", "{\"smp_products\":1,\"cp", "[]\n", "\xff\n"}) {
    std::ofstream(path, std::ios::trunc) << text;
    std::string note;
    CHECK(!read_stored(path, kKey, note));
    CHECK(note == "it holds no measurement");
  }
}
