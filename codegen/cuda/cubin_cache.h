// CubinCache: compiled kernels in a folder, from process to process.
//
// A file has the whole key (what was compiled, for what, by which compiler) and
// the cubin, with a checksum: what does not fit is as if it were not there, and
// is replaced. Files are written under another name first and belong to the
// user alone, as the folder has to; what others could have written is not read.
// The files that were used longest ago go when there is too much. Any thread,
// any number of processes. Nothing here is an error: a cache that cannot be
// used keeps nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace framejit::codegen {

class CubinCache {
 public:
  // "": none. The folder is made when something is kept.
  explicit CubinCache(std::string folder,
                      uint64_t most_bytes = uint64_t{256} << 20)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  // Empty: it is not there.
  std::vector<char> find(const std::string& key) const;
  void keep(const std::string& key, const std::vector<char>& image) const;

  // The user's own: in XDG_CACHE_HOME, or ~/.cache (freedesktop.org's Base
  // Directory Specification). "": there is none.
  static std::string users_folder();

 private:
  void make_room(uint64_t bytes) const;

  std::string folder_;
  uint64_t most_bytes_;
};

}  // namespace framejit::codegen
