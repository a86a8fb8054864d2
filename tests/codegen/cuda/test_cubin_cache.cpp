// Compiled kernels on disk: what is damaged, too large, or somebody else's is
// as if it were not there.
#include "codegen/cuda/cubin_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace framejit::codegen {
namespace {

namespace fs = std::filesystem;

class CubinCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern =
        (fs::temp_directory_path() / "framejit-cache-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(pattern.data()));
    root_ = pattern;
    folder_ = (root_ / "above" / "framejit").string();
  }
  void TearDown() override { fs::remove_all(root_); }

  static std::vector<char> image(char with, size_t size = 1000) {
    return std::vector<char>(size, with);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> out;
    for (const auto& entry : fs::directory_iterator(folder_))
      out.push_back(entry.path());
    return out;
  }

  fs::path root_;
  std::string folder_;
};

TEST_F(CubinCacheTest, WhatIsKeptIsFoundByItsKeyAlone) {
  const CubinCache cache(folder_);
  EXPECT_TRUE(cache.find("a").empty());
  cache.keep("a", image('a'));
  cache.keep("b", image('b', 10));
  EXPECT_EQ(CubinCache(folder_).find("a"), image('a'));
  EXPECT_EQ(cache.find("b"), image('b', 10));
  EXPECT_TRUE(cache.find("c").empty());
  cache.keep("a", image('x'));
  EXPECT_EQ(cache.find("a"), image('x'));
  struct stat about{};
  ASSERT_EQ(stat(folder_.c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0700u);
  for (const fs::path& file : files()) {
    ASSERT_EQ(stat(file.c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
  }
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(CubinCacheTest, WhatIsDamagedIsNotThereAndIsReplaced) {
  const CubinCache cache(folder_);
  cache.keep("key", image('k'));
  const fs::path file = files()[0];
  const auto size = fs::file_size(file);
  // Each byte of the head and the key, some of the image, and the length.
  for (uint64_t at = 0; at < size; at += at < 48 ? 1 : 97) {
    {
      std::fstream stream(file,
                          std::ios::in | std::ios::out | std::ios::binary);
      stream.seekg(static_cast<std::streamoff>(at));
      const char old = static_cast<char>(stream.get());
      stream.seekp(static_cast<std::streamoff>(at));
      stream.put(static_cast<char>(old ^ 0x20));
    }
    EXPECT_TRUE(cache.find("key").empty()) << at;
    cache.keep("key", image('k'));
    EXPECT_EQ(cache.find("key"), image('k'));
  }
  for (uint64_t length : {uint64_t{0}, uint64_t{7}, uint64_t{40}, size - 1}) {
    fs::resize_file(file, length);
    EXPECT_TRUE(cache.find("key").empty()) << length;
    cache.keep("key", image('k'));
  }
  fs::resize_file(file, size + 1);
  EXPECT_TRUE(cache.find("key").empty());
}

TEST_F(CubinCacheTest, WhatOthersCouldHaveWrittenIsNotRead) {
  const CubinCache cache(folder_);
  cache.keep("key", image('k'));
  const fs::path file = files()[0];
  chmod(file.c_str(), 0620);
  EXPECT_TRUE(cache.find("key").empty());
  chmod(file.c_str(), 0600);
  EXPECT_FALSE(cache.find("key").empty());
  chmod(folder_.c_str(), 0777);
  EXPECT_TRUE(cache.find("key").empty());
  cache.keep("other", image('o'));
  EXPECT_EQ(files().size(), 1u);
  chmod(folder_.c_str(), 0700);
  const fs::path elsewhere = root_ / "elsewhere";
  fs::rename(file, elsewhere);
  fs::create_symlink(elsewhere, file);
  EXPECT_TRUE(cache.find("key").empty());
}

TEST_F(CubinCacheTest, TheOldestGoWhenThereIsTooMuch) {
  const CubinCache cache(folder_, 20'000);
  for (int i = 0; i < 40; ++i) {
    cache.keep("key " + std::to_string(i), image('k', 2000));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_FALSE(cache.find("key " + std::to_string(i)).empty());
  }
  uint64_t all = 0;
  for (const fs::path& file : files()) all += fs::file_size(file);
  EXPECT_LE(all, 20'000u);
  EXPECT_GE(files().size(), 5u);
  EXPECT_TRUE(cache.find("key 0").empty());
  cache.keep("too large", image('t', 30'000));
  EXPECT_TRUE(cache.find("too large").empty());
}

TEST_F(CubinCacheTest, WithoutAFolderNothingIsKept) {
  const CubinCache none("");
  none.keep("key", image('k'));
  EXPECT_TRUE(none.find("key").empty());
  std::ofstream(root_ / "above") << "a file";
  const CubinCache cannot(folder_);
  cannot.keep("key", image('k'));
  EXPECT_TRUE(cannot.find("key").empty());
}

TEST_F(CubinCacheTest, ThreadsMayKeepTheSame) {
  const CubinCache cache(folder_);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        cache.keep("key", image('k', 5000));
        const auto found = cache.find("key");
        EXPECT_TRUE(found.empty() || found == image('k', 5000));
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cache.find("key"), image('k', 5000));
  EXPECT_EQ(files().size(), 1u);
}

}  // namespace
}  // namespace framejit::codegen
