#include <dlfcn.h>
#include <unistd.h>

#include <cstring>

// A file system that stands still for 3 s whenever something is removed from a folder "errors":
// for a program that has this library loaded before its own.
extern "C" int remove(const char* path) noexcept {
  if (std::strstr(path, "/errors/") != nullptr) ::sleep(3);
  return reinterpret_cast<int (*)(const char*)>(::dlsym(RTLD_NEXT, "remove"))(path);
}
