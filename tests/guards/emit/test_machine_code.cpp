// The pages of emitted code: who may write them, and that they are given back.
#include "guards/emit/machine_code.h"

#include <asmjit/x86.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <string>

namespace framejit {
namespace {

namespace x86 = asmjit::x86;

// Code that returns `number`, behind `padding` bytes.
std::unique_ptr<MachineCode> returns(int number, size_t padding = 0) {
  asmjit::CodeHolder code;
  code.init(asmjit::Environment::host());
  x86::Assembler assembler(&code);
  assembler.mov(x86::eax, number);
  assembler.ret();
  for (size_t i = 0; i < padding; ++i) assembler.int3();
  return MachineCode::place(code);
}

int call(const MachineCode& code) { return code.function<int (*)()>()(); }

// "r-xp" and the like; "": nothing is mapped there.
std::string permissions(const void* address) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    std::istringstream text(line);
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::string found;
    text >> std::hex >> begin >> dash >> end >> found;
    auto at = reinterpret_cast<uintptr_t>(address);
    if (begin <= at && at < end) return found;
  }
  return "";
}

TEST(MachineCode, IsExecutableAndNotWritable) {
  auto code = returns(42);
  ASSERT_TRUE(code);
  EXPECT_EQ(call(*code), 42);
  EXPECT_EQ(permissions(code->begin()), "r-xp");
}

TEST(MachineCode, GoesWithItsOwner) {
  size_t before = MachineCode::mapped_bytes();
  auto code = returns(1, 10000);
  ASSERT_TRUE(code);
  EXPECT_GE(code->size(), 10000u);
  EXPECT_GE(MachineCode::mapped_bytes(), before + code->size());
  const void* begin = code->begin();
  code.reset();
  EXPECT_EQ(MachineCode::mapped_bytes(), before);
  // Something else may have been mapped there since, but no code.
  EXPECT_NE(permissions(begin), "r-xp");
}

TEST(MachineCode, OtherPiecesStayAsTheyWere) {
  std::vector<std::unique_ptr<MachineCode>> pieces;
  for (int i = 0; i < 300; ++i) pieces.push_back(returns(i, i * 20));
  for (size_t i = 0; i < pieces.size(); i += 2) pieces[i].reset();
  for (int i = 0; i < 100; ++i) pieces.push_back(returns(300 + i, i));
  for (size_t i = 1; i < 300; i += 2) {
    EXPECT_EQ(call(*pieces[i]), int(i));
  }
  for (int i = 0; i < 100; ++i) EXPECT_EQ(call(*pieces[300 + i]), 300 + i);
}

TEST(MachineCode, AChildHasItsOwn) {
  auto code = returns(7);
  pid_t child = fork();
  if (child == 0) {
    bool right = call(*code) == 7;
    auto more = returns(9);
    code.reset();
    _exit(right && more && call(*more) == 9 ? 0 : 1);
  }
  auto other = returns(8);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(call(*code), 7);
  EXPECT_EQ(call(*other), 8);
}

}  // namespace
}  // namespace framejit
