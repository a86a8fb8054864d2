#include "codegen/cuda/cubin_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <tuple>

namespace framejit::codegen {

namespace {

namespace fs = std::filesystem;

constexpr char kMagic[8] = {'F', 'J', 'C', 'U', 'B', 'I', 'N', '1'};
constexpr uint64_t kLargest = uint64_t{64} << 20;  // a file

struct Head {
  char magic[8];
  uint64_t key_bytes, image_bytes, checksum;
};

// FNV-1a (isthe.com/chongo/tech/comp/fnv); `seed` makes another of it.
uint64_t hash_of(const char* data, size_t size, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (size_t i = 0; i < size; ++i) {
    hash ^= static_cast<unsigned char>(data[i]);
    hash *= 0x100000001b3;
  }
  return hash;
}

uint64_t checksum_of(const std::string& key, const char* image, size_t size) {
  return hash_of(image, size, hash_of(key.data(), key.size(), 0));
}

std::string file_of(const std::string& folder, const std::string& key) {
  char name[48];
  snprintf(name, sizeof name, "%016llx%016llx.cubin",
           static_cast<unsigned long long>(hash_of(key.data(), key.size(), 1)),
           static_cast<unsigned long long>(hash_of(key.data(), key.size(), 2)));
  return folder + "/" + name;
}

// The user's, and written to by nobody else.
bool is_own(const struct stat& about) {
  return about.st_uid == geteuid() &&
         (about.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  explicit operator bool() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  bool read(void* to, size_t size) const {
    auto* at = static_cast<char*>(to);
    while (size > 0) {
      const ssize_t count = ::read(descriptor_, at, size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }
  bool write(const void* from, size_t size) const {
    const auto* at = static_cast<const char*>(from);
    while (size > 0) {
      const ssize_t count = ::write(descriptor_, at, size);
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) return false;
      at += count;
      size -= static_cast<size_t>(count);
    }
    return true;
  }

 private:
  int descriptor_;
};

}  // namespace

std::string CubinCache::users_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache && cache[0] == '/') return std::string(cache) + "/framejit";
  const char* home = std::getenv("HOME");
  return home && home[0] == '/' ? std::string(home) + "/.cache/framejit" : "";
}

std::vector<char> CubinCache::find(const std::string& key) const {
  if (folder_.empty()) return {};
  struct stat about{};
  if (lstat(folder_.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
      !is_own(about))
    return {};
  File file(
      open(file_of(folder_, key).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) ||
      !is_own(about))
    return {};
  Head head{};
  const auto size = static_cast<uint64_t>(about.st_size);
  if (size > kLargest || !file.read(&head, sizeof head) ||
      std::memcmp(head.magic, kMagic, sizeof kMagic) != 0 ||
      head.key_bytes != key.size() || head.image_bytes > kLargest ||
      size != sizeof head + head.key_bytes + head.image_bytes)
    return {};
  std::string known(key.size(), '\0');
  std::vector<char> image(head.image_bytes);
  if (!file.read(known.data(), known.size()) || known != key ||
      !file.read(image.data(), image.size()) ||
      head.checksum != checksum_of(key, image.data(), image.size()))
    return {};
  futimens(file.get(), nullptr);  // used now
  return image;
}

void CubinCache::keep(const std::string& key,
                      const std::vector<char>& image) const {
  if (folder_.empty() || image.empty()) return;
  Head head{};
  std::memcpy(head.magic, kMagic, sizeof kMagic);
  head.key_bytes = key.size();
  head.image_bytes = image.size();
  head.checksum = checksum_of(key, image.data(), image.size());
  const uint64_t bytes = sizeof head + key.size() + image.size();
  if (bytes > kLargest || bytes > most_bytes_) return;
  std::error_code ignored;
  const fs::path parent = fs::path(folder_).parent_path();
  if (!parent.empty()) fs::create_directories(parent, ignored);
  mkdir(folder_.c_str(), 0700);
  struct stat about{};
  if (lstat(folder_.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) ||
      !is_own(about))
    return;
  make_room(bytes);
  static std::atomic<uint64_t> number = 0;
  const std::string last = file_of(folder_, key);
  const std::string first = last + "." + std::to_string(getpid()) + "." +
                            std::to_string(number++) + ".tmp";
  bool is_whole = false;
  {
    File file(
        open(first.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    is_whole = file && file.write(&head, sizeof head) &&
               file.write(key.data(), key.size()) &&
               file.write(image.data(), image.size());
  }
  if (!is_whole || rename(first.c_str(), last.c_str()) != 0)
    unlink(first.c_str());
}

void CubinCache::make_room(uint64_t bytes) const {
  std::vector<std::tuple<fs::file_time_type, uint64_t, fs::path>> files;
  uint64_t all = bytes;
  std::error_code error;
  for (fs::directory_iterator at(folder_, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code gone;
    const uint64_t size = at->file_size(gone);
    const auto used = gone ? fs::file_time_type() : at->last_write_time(gone);
    if (gone) continue;
    all += size;
    files.emplace_back(used, size, at->path());
  }
  if (all <= most_bytes_) return;
  // Down to three quarters, so that not every file that comes looks.
  std::sort(files.begin(), files.end());
  for (const auto& [used, size, path] : files) {
    if (all <= most_bytes_ / 4 * 3) return;
    fs::remove(path, error);
    all -= size;
  }
}

}  // namespace framejit::codegen
