#include "bytecode/residual/loops.h"

#include <algorithm>

#include "bytecode/code/opcode_table.h"

namespace framejit::bytecode {
namespace {

MicroOpKind kind_of(const ResidualCache& cache, int index) {
  return opcode_table()[cache.body.instructions[index].opcode].row->kind;
}

int handler_of(const ResidualCache& cache, int index) {
  int label = cache.body.instructions[index].handler.target;
  return label >= 0 ? cache.body.labels[label] : -1;
}

// Where control may go from an instruction, by raising too.
std::vector<int> ways_from(const ResidualCache& cache, int index) {
  std::vector<int> ways;
  for (Successor next : successors(cache.body, index))
    ways.push_back(next.instruction);
  int handler = handler_of(cache, index);
  if (handler >= 0) ways.push_back(handler);
  return ways;
}

// What is reached from an instruction without passing through `avoided`.
std::vector<bool> reached_from(const ResidualCache& cache, int index,
                               int avoided) {
  std::vector<bool> reached(cache.body.instructions.size());
  std::vector<int> work;
  auto visit = [&](int at) {
    if (at == avoided || reached[at]) return;
    reached[at] = true;
    work.push_back(at);
  };
  visit(index);
  while (!work.empty()) {
    int at = work.back();
    work.pop_back();
    for (int next : ways_from(cache, at)) visit(next);
  }
  return reached;
}

}  // namespace

std::vector<bool> loop_body(const ResidualCache& cache, int header) {
  int size = int(cache.body.instructions.size());
  std::vector<bool> body(size);
  if (cache.why_not || header < 0 || !cache.frames[header]) return body;
  // Entered through the header: out of reach without it.
  std::vector<bool> elsewhere = reached_from(cache, 0, header);
  std::vector<std::vector<int>> sources(size);
  for (int i = 0; i < size; ++i) {
    if (!cache.frames[i] || elsewhere[i]) continue;
    for (int next : ways_from(cache, i)) sources[next].push_back(i);
  }
  std::vector<int> work;
  auto visit = [&](int at) {
    if (body[at]) return;
    body[at] = true;
    if (at != header) work.push_back(at);
  };
  for (int turn : sources[header]) visit(turn);
  while (!work.empty()) {
    int at = work.back();
    work.pop_back();
    for (int source : sources[at]) visit(source);
  }
  if (!sources[header].empty()) body[header] = true;
  return body;
}

namespace {

// For the exception table covers these, too.
bool may_raise(MicroOpKind kind) {
  switch (kind) {
    case MicroOpKind::kNop:
    case MicroOpKind::kPop:
    case MicroOpKind::kCopy:
    case MicroOpKind::kSwap:
    case MicroOpKind::kPushNull:
    case MicroOpKind::kLoadConst:
    case MicroOpKind::kStoreFast:
    case MicroOpKind::kJump:
    case MicroOpKind::kPushExcInfo:
    case MicroOpKind::kPopExcept:
      return false;
    default:
      return true;
  }
}

// Follows control through a loop and counts the except blocks it is in.
class RegionWalk {
 public:
  RegionWalk(const ResidualCache& cache, const std::vector<bool>& body)
      : cache_(cache), body_(body), blocks_(body.size(), kOutside) {}

  // Empty when one place is reached within another number of blocks.
  std::vector<bool> run(int header) {
    visit(header, 0);
    while (!work_.empty() && consistent_) {
      int at = work_.back();
      work_.pop_back();
      step(at);
    }
    std::vector<bool> region(consistent_ ? body_.size() : 0);
    for (size_t i = 0; i < region.size(); ++i)
      region[i] = blocks_[i] != kOutside;
    return region;
  }

 private:
  static constexpr int kOutside = -1;
  // Added in code that only cleans up and raises again: its exception, which is
  // on the stack, is in no block of its own.
  static constexpr int kUnwinding = 1'000'000;

  void step(int at) {
    int blocks = blocks_[at];
    MicroOpKind kind = kind_of(cache_, at);
    int handler = may_raise(kind) ? handler_of(cache_, at) : -1;
    if (handler >= 0) {
      bool enters = kind_of(cache_, handler) == MicroOpKind::kPushExcInfo;
      visit(handler, blocks % kUnwinding + (enters ? 0 : kUnwinding));
    }
    blocks += kind == MicroOpKind::kPushExcInfo;
    blocks -= kind == MicroOpKind::kPopExcept;
    for (Successor next : successors(cache_.body, at)) {
      // The end of a `with` drops what it has left on the stack.
      bool drops =
          !body_[at] && kind_of(cache_, next.instruction) == MicroOpKind::kPop;
      if (body_[next.instruction] || blocks > 0 || drops)
        visit(next.instruction, blocks);
    }
  }

  void visit(int at, int blocks) {
    if (blocks_[at] == kOutside) {
      blocks_[at] = blocks;
      work_.push_back(at);
    }
    consistent_ &= blocks_[at] == blocks && blocks >= 0;
  }

  const ResidualCache& cache_;
  const std::vector<bool>& body_;
  std::vector<int> blocks_;  // entered since, before each instruction
  std::vector<int> work_;
  bool consistent_ = true;
};

}  // namespace

std::vector<bool> loop_region(const ResidualCache& cache, int header) {
  std::vector<bool> body = loop_body(cache, header);
  if (!body[header]) return {};
  return RegionWalk(cache, body).run(header);
}

int outermost_loop(const ResidualCache& cache, int index,
                   const std::vector<int>& headers) {
  int found = -1;
  size_t largest = 0;
  for (int header : headers) {
    std::vector<bool> body = loop_body(cache, header);
    if (index < 0 || !body[index]) continue;
    size_t size = std::count(body.begin(), body.end(), true);
    if (size <= largest) continue;
    largest = size;
    found = header;
  }
  return found;
}

bool has_work_behind(const ResidualCache& cache, int index) {
  std::vector<bool> behind = reached_from(cache, index, -1);
  for (size_t i = 0; i < behind.size(); ++i) {
    if (!behind[i]) continue;
    switch (kind_of(cache, int(i))) {
      case MicroOpKind::kCall:
      case MicroOpKind::kCallKw:
      case MicroOpKind::kCallEx:
      case MicroOpKind::kBinary:
      case MicroOpKind::kUnary:
      case MicroOpKind::kCompare:
      case MicroOpKind::kSubscr:
        return true;
      default:
        break;
    }
  }
  return false;
}

}  // namespace framejit::bytecode
