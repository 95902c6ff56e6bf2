#pragma once

#include <rdma/fabric.h>

#include <utility>

#include "net/libfabric.h"

// Who ends what libfabric has made.
namespace smp::net {

// An object of libfabric.
template <class Object>
class Closing {
 public:
  Closing() = default;
  ~Closing() { close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  void close() {
    if (object_ != nullptr) fi_close(&std::exchange(object_, nullptr)->fid);
  }
  Object** slot() { return &object_; }
  Object* get() const { return object_; }
  Object* operator->() const { return object_; }

 private:
  Object* object_ = nullptr;
};

class Info {
 public:
  Info(const LibFabric& library, fi_info* info) : library_(library), info_(info) {}
  ~Info() {
    if (info_ != nullptr) library_.free(info_);
  }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  fi_info* operator->() const { return info_; }
  fi_info* get() const { return info_; }

 private:
  const LibFabric& library_;
  fi_info* info_;
};

}  // namespace smp::net
