#pragma once

#include <rdma/fabric.h>

#include <utility>

#include "net/libfabric.h"

// RAII owners of what libfabric allocates.
namespace smp::net {

// Owns an object of libfabric (a fid) and closes it.
template <class Object>
class FidHandle {
 public:
  FidHandle() = default;
  ~FidHandle() { close(); }
  FidHandle(const FidHandle&) = delete;
  FidHandle& operator=(const FidHandle&) = delete;
  void close() {
    if (object_ != nullptr) fi_close(&std::exchange(object_, nullptr)->fid);
  }
  Object** slot() { return &object_; }
  Object* get() const { return object_; }
  Object* operator->() const { return object_; }

 private:
  Object* object_ = nullptr;
};

class FabricInfo {
 public:
  FabricInfo(const LibFabric& library, fi_info* info) : library_(library), info_(info) {}
  ~FabricInfo() {
    if (info_ != nullptr) library_.free(info_);
  }
  FabricInfo(const FabricInfo&) = delete;
  FabricInfo& operator=(const FabricInfo&) = delete;
  fi_info* operator->() const { return info_; }
  fi_info* get() const { return info_; }

 private:
  const LibFabric& library_;
  fi_info* info_;
};

}  // namespace smp::net
