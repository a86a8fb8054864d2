#include <cmath>
#include <cstring>
#include <limits>

#include "codegen/scalar/evaluate.h"
#include "random_loops.h"
#include "random_source.h"

namespace framejit::codegen {
namespace {

Element random_element(RandomSource& random, DType type) {
  if (type == DType::kBool) return random.below(2);
  if (!is_float(type)) {
    if (random.chance(8))
      return element_of_integer(type, static_cast<int64_t>(random.bits()));
    if (random.chance(16))
      return element_of_integer(
          type, random.pick<int64_t>({std::numeric_limits<int64_t>::min(),
                                      std::numeric_limits<int64_t>::max(),
                                      INT32_MIN, INT32_MAX, INT16_MIN,
                                      INT16_MAX, -128, 127, 255, 0, -1}));
    return element_of_integer(type, random.below(21) - 10);
  }
  if (random.chance(24)) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    return element_of(
        type, random.pick<double>({kInf, -kInf, std::nan(""), 0.0, -0.0, 1e-41,
                                   -3e-8, 5e-310, 65504, 3e38, -1e300, 0x1p31,
                                   -0x1p63, 1, -1}));
  }
  double number = static_cast<double>(random.below(2000001) - 1000000) / 250000;
  return element_of(type, random.chance(6) ? number * 1000 : number);
}

std::vector<int64_t> values(const std::vector<Expr>& list,
                            const int64_t* symbols) {
  std::vector<int64_t> out;
  for (const Expr& e : list) out.push_back(e.evaluate(symbols));
  return out;
}

BufferMemory memory_of(const LoopGraph& graph, BufferId id,
                       const int64_t* symbols) {
  const Buffer& buffer = graph.buffers[id];
  auto sizes = values(buffer.sizes, symbols);
  auto strides = values(buffer.strides, symbols);
  int64_t low = 0, high = 0;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    int64_t way = (std::max<int64_t>(sizes[dim], 1) - 1) * strides[dim];
    (way < 0 ? low : high) += way;
  }
  const int64_t bytes = static_cast<int64_t>(dtype_size(buffer.type));
  BufferMemory out;
  out.bytes.assign((high - low + 1) * bytes, '\x5b');
  out.first = out.bytes.data() - low * bytes;
  return out;
}

template <class F>
void for_each_element(const LoopGraph& graph, BufferId id,
                      const int64_t* symbols, F&& f) {
  const Buffer& buffer = graph.buffers[id];
  auto sizes = values(buffer.sizes, symbols);
  auto strides = values(buffer.strides, symbols);
  for (int64_t size : sizes)
    if (size == 0) return;
  std::vector<int64_t> point(sizes.size());
  for (;;) {
    int64_t place = 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim)
      place += point[dim] * strides[dim];
    f(place * static_cast<int64_t>(dtype_size(buffer.type)), point);
    size_t dim = sizes.size();
    while (dim > 0 && ++point[dim - 1] == sizes[dim - 1]) point[--dim] = 0;
    if (dim == 0) return;
  }
}

bool agree(DType type, Element a, Element b, double tolerance) {
  if (same_element(type, a, b)) return true;
  if (!is_float(type)) return false;
  double x = as_double(type, a), y = as_double(type, b);
  return x == y || std::fabs(x - y) <= tolerance;
}

}  // namespace

BufferMemory random_memory(const LoopGraph& graph, BufferId buffer,
                           const int64_t* symbols, uint64_t seed) {
  RandomSource random(seed);
  BufferMemory out = memory_of(graph, buffer, symbols);
  DType type = graph.buffers[buffer].type;
  for (size_t at = 0; at + dtype_size(type) <= out.bytes.size();
       at += dtype_size(type))
    store_element(type, random_element(random, type), &out.bytes[at]);
  return out;
}

BufferMemory unwritten_memory(const LoopGraph& graph, BufferId buffer,
                              const int64_t* symbols) {
  return memory_of(graph, buffer, symbols);
}

std::vector<const void*> RunMemory::input_pointers() const {
  std::vector<const void*> out;
  for (const BufferMemory& memory : inputs) out.push_back(memory.first);
  return out;
}

std::vector<void*> RunMemory::output_pointers() {
  std::vector<void*> out;
  for (BufferMemory& memory : outputs) out.push_back(memory.first);
  return out;
}

RunMemory random_run(const RandomLoops& program, uint64_t seed) {
  RunMemory out;
  const LoopGraph& graph = program.graph;
  for (const Definition& definition : graph.definitions)
    if (definition.kind == DefinitionKind::kInput)
      out.inputs.push_back(random_memory(graph, definition.results[0],
                                         program.symbols.data(), seed++));
  for (BufferId output : graph.outputs)
    out.outputs.push_back(
        unwritten_memory(graph, output, program.symbols.data()));
  return out;
}

std::string compare_outputs(const RandomLoops& program,
                            const RunMemory& expected, const RunMemory& got) {
  const LoopGraph& graph = program.graph;
  std::string difference;
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    const BufferId id = graph.outputs[i];
    const DType type = graph.buffers[id].type;
    std::vector<char> between[2] = {expected.outputs[i].bytes,
                                    got.outputs[i].bytes};
    for_each_element(
        graph, id, program.symbols.data(),
        [&](int64_t place, const std::vector<int64_t>& point) {
          Element a = load_element(type, expected.outputs[i].first + place);
          Element b = load_element(type, got.outputs[i].first + place);
          int64_t behind = expected.outputs[i].first -
                           expected.outputs[i].bytes.data() + place;
          for (auto& bytes : between)
            std::memset(&bytes[behind], 0, dtype_size(type));
          if (!difference.empty() || agree(type, a, b, program.tolerance[i]))
            return;
          difference = "output " + std::to_string(i) + " (%" +
                       std::to_string(id) + ") at [";
          for (int64_t index : point) difference += std::to_string(index) + " ";
          difference += "]: expected " + std::to_string(as_double(type, a)) +
                        ", got " + std::to_string(as_double(type, b)) +
                        ", tolerance " + std::to_string(program.tolerance[i]);
        });
    if (difference.empty() && between[0] != between[1])
      difference = "output " + std::to_string(i) + ": written between elements";
  }
  return difference;
}

ExternCall copying_call(const RandomLoops& program) {
  return [&program](const Definition& definition,
                    std::span<void* const> operands,
                    std::span<void* const> results) {
    const LoopGraph& graph = program.graph;
    std::vector<std::pair<int64_t, int64_t>> places;
    std::vector<int64_t> from;
    for_each_element(
        graph, definition.operands[0], program.symbols.data(),
        [&](int64_t place, const auto&) { from.push_back(place); });
    for (size_t i = 0; i < results.size(); ++i) {
      size_t next = 0;
      for_each_element(
          graph, definition.results[i], program.symbols.data(),
          [&](int64_t place, const auto&) {
            std::memcpy(static_cast<char*>(results[i]) + place,
                        static_cast<char*>(operands[0]) + from[next++],
                        dtype_size(graph.buffers[definition.results[i]].type));
          });
    }
    return true;
  };
}

}  // namespace framejit::codegen
