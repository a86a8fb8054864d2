// The functions of a library that is opened when it is first asked for.
#pragma once

#include <dlfcn.h>

#include <string>
#include <type_traits>

namespace framejit::codegen {

class LibraryFunctions {
 public:
  // Opens it (a name without a folder is looked for as the system does); the
  // caller closes it.
  LibraryFunctions(const std::string& path, void** library) : path_(path) {
    library_ = *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) error_ = dlerror();
  }

  template <class F>
  void find(F& function, const char* name) {
    if (!library_) return;
    void* found = dlsym(library_, name);
    if (!found) error_ = std::string(name) + " is not in " + path_;
    function = reinterpret_cast<F>(found);
  }

  // "": it is there, and so are all that were asked for.
  const std::string& error() const { return error_; }

 private:
  std::string path_, error_;
  void* library_ = nullptr;
};

}  // namespace framejit::codegen
