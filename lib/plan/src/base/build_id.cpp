#include "smp/plan/base/build_id.h"

#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>

namespace smp {
namespace {

constexpr size_t padded(size_t bytes) { return (bytes + 3) / 4 * 4; }

// The first object that the callback sees is the program itself; 1 ends the walk.
int read_notes(dl_phdr_info* info, size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& part = info->dlpi_phdr[i];
    if (part.p_type != PT_NOTE) continue;
    const auto* note = reinterpret_cast<const unsigned char*>(info->dlpi_addr + part.p_vaddr);
    const unsigned char* const end = note + part.p_memsz;
    while (note + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) header;
      std::memcpy(&header, note, sizeof header);
      const unsigned char* const name = note + sizeof header;
      const unsigned char* const value = name + padded(header.n_namesz);
      note = value + padded(header.n_descsz);
      if (header.n_type != NT_GNU_BUILD_ID || note > end || header.n_namesz != 4 ||
          std::memcmp(name, "GNU", 4) != 0)
        continue;
      auto& text = *static_cast<std::string*>(result);
      for (size_t k = 0; k < header.n_descsz; ++k) text += fmt::format("{:02x}", value[k]);
      return 1;
    }
  }
  return 1;
}

}  // namespace

std::string own_build_id() {
  std::string text;
  dl_iterate_phdr(read_notes, &text);
  return text;
}

}  // namespace smp
