// Loop IR: what is computed, element by element, and not yet how.
//
//   loops(s0) {
//     %0 : f32[s0, 64] = input
//     %1 : f32[64] = input
//     %2 : f32[s0] = reduce sum (i0 < s0; i1 < 64) %0[i0, i1]
//     %3 : f32[s0, 64] = map (i0 < s0, i1 < 64) add(sub(%0[i0, i1], %2[i0]),
//     %1[i1]) return %3
//   }
//
// (`return %3 into %0`: %3 is to be the content of %0, see `places`.)
//
// A LoopGraph is a list of definitions. Each defines one or more *buffers* over
// an index domain with symbolic extents; a definition reads earlier buffers at
// index maps that are affine in its loops, or at indices that are data. A
// buffer is a value: it is written once. Whether it ever lies in memory, and
// where, is for the schedule to say. A Check in a body is an effect: its
// definition is computed even if nothing reads it. (The value, or an index,
// needs the Check; what else a body holds has no meaning.)
//
// interpret() (interpreter.h) is the meaning. Everything prints and parses back
// (text.h); verify() says what is malformed.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "codegen/scalar/body.h"
#include "guards/expr/expr.h"

namespace framejit::codegen {

using BufferId = int32_t;
inline constexpr BufferId kNoBuffer = -1;

// A value over an index space. `strides` (in elements) and `offset` say how it
// lies in memory if it does: for inputs and outputs they are eager's, otherwise
// contiguous.
struct Buffer {
  DType type = DType::kF32;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  // The same memory as another buffer seen otherwise: elements at offset +
  // sum(index * stride) from the first of `alias_of`, which is no alias itself.
  // Never data of its own, and no definition's result.
  BufferId alias_of = kNoBuffer;
  Expr offset;
  std::string name;  // optional, for people
};

// offset + sum(coefficients[k] * loop k), one coefficient a loop of the
// definition (outer first), plus the value of `data`, an i64 of the body.
struct Index {
  Expr offset;
  std::vector<Expr> coefficients;
  ScalarId data = kNoScalar;
  bool operator==(const Index&) const = default;
};

// An element of a buffer: one Index a dim. Loads out of range do not happen:
// bounds of data are checked by a Check in the body, and a load under `when` is
// only done where that is true (elsewhere its value is 0). What `data` and
// `when` name comes before the Load in the body.
struct Access {
  BufferId buffer;
  std::vector<Index> indices;
  ScalarId when = kNoScalar;
  bool operator==(const Access&) const = default;
};

// FJ_COMBINER(name, text, results, types): buffers that come out.
enum class Combiner : uint8_t {
#define FJ_COMBINER(name, ...) k##name,
#include "codegen/loops/combiners.def"
#undef FJ_COMBINER
};

struct CombinerRow {
  const char* text;
  int results;
  OperandTypes types;  // of the value
  bool place;          // the second result is an i64
  // What puts two elements together; then a scan may have it.
  std::optional<ScalarOp> operation;
};
const CombinerRow& combiner_row(Combiner combiner);
std::optional<Combiner> combiner_named(std::string_view name);

enum class DefinitionKind : uint8_t {
  kInput,   // a tensor of the caller
  kMap,     // result[loops] = value
  kReduce,  // over the last `reduced` loops: result[other loops]
  kScan,    // prefixes along the last loop, it included: result[loops]
  kUpdate,  // base with result[target indices] = value, in loop order;
            // with a combiner: combined with what is there (scatter_add)
  kExtern,  // a call that is not ours: `callee` names it for the caller
};

struct Definition {
  DefinitionKind kind = DefinitionKind::kMap;
  std::vector<BufferId> results;
  std::vector<Expr> loops;  // extents, outer first
  int reduced = 0;          // kReduce: how many of the last loops
  std::optional<Combiner> combiner;
  // Load: of accesses; Index: of loops; Number: of LoopGraph::numbers.
  Body body;
  std::vector<Access> accesses;
  ScalarId value = kNoScalar;  // what an element gives
  // kUpdate: the buffer that is changed (kNoBuffer: nothing is there yet, and
  // the elements not written have no value) and where an element goes.
  BufferId base = kNoBuffer;
  std::vector<Index> target;
  // kExtern.
  int callee = -1;
  std::vector<BufferId> operands;
  // It draws random numbers, or does something beside its results: it is done
  // even if nothing reads them, and in the order of such calls.
  bool ordered = false;
  // It may refuse its arguments: it is done even if nothing reads its results.
  bool kept = false;
  // It cannot fail, but for want of memory.
  bool sure = false;
  // Its one result is written where that is to lie. That may be where operand
  // `over` lies (-1: not where any does).
  bool into = false;
  int over = -1;
};

class LoopGraph {
 public:
  std::vector<Buffer> buffers;
  std::vector<Definition> definitions;  // each before its readers
  std::vector<Expr> numbers;            // of Number leaves: ints, or floats
  std::vector<BufferId> outputs;
  // Of each output (the list may be shorter): the input whose content it is to
  // be in the end, or kNoBuffer. The two lie alike. It changes no value: a
  // schedule may do the work in the memory of that input.
  std::vector<BufferId> places;

  BufferId place_of(size_t output) const {
    return output < places.size() ? places[output] : kNoBuffer;
  }
  BufferId add_buffer(Buffer buffer);
  int add_number(const Expr& number);  // its place in numbers
  // The buffer whose memory it is: itself, but for aliases.
  BufferId root(BufferId buffer) const;
};

// A call can write its result where `root` is: of what lies there it reads at
// most the operand that it may write over, all of it, lying as the result does.
bool can_write_over(const std::vector<Buffer>& buffers, const Definition& call,
                    BufferId root);

// Contiguous strides of these sizes.
std::vector<Expr> contiguous_strides(const std::vector<Expr>& sizes);

// "": fine; otherwise what is wrong.
std::string verify(const LoopGraph& graph);

}  // namespace framejit::codegen
