#pragma once

#include <rdma/fabric.h>

#include <string>

// libfabric, loaded at run time and only by jobs that span hosts. Other jobs run without it: its
// providers install signal handlers in a process that loads them.
namespace smp::net {

class LibFabric {
 public:
  LibFabric();  // throws std::runtime_error where it cannot be loaded

  uint32_t version() const { return version_(); }
  std::string version_text() const;
  std::string text_of(int error) const;  // a positive or negative libfabric error
  int getinfo(const char* node, uint64_t flags, const fi_info* hints, fi_info** info) const;
  fi_info* new_info() const { return dupinfo_(nullptr); }
  fi_info* copy(const fi_info* info) const { return dupinfo_(info); }
  void free(fi_info* info) const { freeinfo_(info); }
  int open(fi_fabric_attr* attributes, fid_fabric** fabric) const;

 private:
  decltype(&fi_version) version_;
  decltype(&fi_strerror) strerror_;
  decltype(&fi_getinfo) getinfo_;
  decltype(&fi_dupinfo) dupinfo_;
  decltype(&fi_freeinfo) freeinfo_;
  decltype(&fi_fabric) fabric_;
};

}  // namespace smp::net
