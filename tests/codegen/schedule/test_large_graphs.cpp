// Large graphs: how long a schedule takes, and that it is no worse for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "codegen/loops/text.h"
#include "codegen/schedule/schedule.h"

namespace framejit::codegen {
namespace {

// Text of definitions, with the number of the next buffer.
struct Writer {
  std::string text;
  int next = 0;
  int define(const std::string& type, const std::string& value) {
    text += "  %" + std::to_string(next) + " : " + type + " = " + value + "\n";
    return next++;
  }
  int map(const std::string& value) {
    return define("f32[512, 768]", "map (i0 < 512, i1 < 768) " + value);
  }
  std::string at(int buffer) const {
    return "%" + std::to_string(buffer) + "[i0, i1]";
  }
  LoopGraph graph(const std::vector<int>& outputs) const {
    std::string all = "loops() {\n" + text + "  return";
    for (size_t i = 0; i < outputs.size(); ++i)
      all += (i ? ", %" : " %") + std::to_string(outputs[i]);
    std::string error;
    auto graph = parse_loops(all + "\n}\n", &error);
    EXPECT_TRUE(graph) << error;
    return graph ? *graph : LoopGraph();
  }
};

// A chain of maps, one needing those before it.
LoopGraph chain(int definitions) {
  Writer w;
  int x = w.define("f32[512, 768]", "input"), y = x;
  for (int i = 0; i < definitions; ++i)
    y = w.map((i % 3 ? "exp(" : "neg(") + w.at(y) + ")");
  return w.graph({y});
}

// Maps of one input, all of them outputs.
LoopGraph readers(int definitions) {
  Writer w;
  int x = w.define("f32[512, 768]", "input");
  std::vector<int> outputs;
  for (int i = 0; i < definitions; ++i)
    outputs.push_back(
        w.map("mul(" + w.at(x) + ", f32(" + std::to_string(i) + "))"));
  return w.graph(outputs);
}

// Layers as in a transformer: calls, with norms and activations between them.
LoopGraph layers(int definitions) {
  Writer w;
  int x = w.define("f32[512, 768]", "input");
  int weight = w.define("f32[768]", "input");
  while (w.next < definitions) {
    int mean = w.define("f32[512]", "reduce sum (i0 < 512; i1 < 768) mul(" +
                                        w.at(x) + ", f32(0.0013020834))");
    int centred =
        w.map("sub(" + w.at(x) + ", %" + std::to_string(mean) + "[i0])");
    int square =
        w.define("f32[512]", "reduce sum (i0 < 512; i1 < 768) mul(" +
                                 w.at(centred) + ", " + w.at(centred) + ")");
    int normal = w.map("div(" + w.at(centred) + ", sqrt(add(%" +
                       std::to_string(square) + "[i0], f32(1e-5))))");
    int scaled =
        w.map("mul(" + w.at(normal) + ", %" + std::to_string(weight) + "[i1])");
    int product =
        w.define("f32[512, 768]", "extern 0 (%" + std::to_string(scaled) + ")");
    int gelu = w.map("mul(" + w.at(product) + ", erf(" + w.at(product) + "))");
    int next =
        w.define("f32[512, 768]", "extern 1 (%" + std::to_string(gelu) + ")");
    x = w.map("add(" + w.at(x) + ", " + w.at(next) + ")");
  }
  return w.graph({x});
}

double seconds(const LoopGraph& graph, size_t* steps, size_t* kernels) {
  TargetInfo target;
  target.threads = 4;
  // Of this process: others may be busy, too.
  const std::clock_t start = std::clock();
  Schedule schedule = make_schedule(graph, target);
  const double out = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(verify(schedule), "");
  *steps = schedule.steps.size();
  *kernels = schedule.kernels.size();
  return out;
}

TEST(LargeGraphs, TakeTimeInProportion) {
  struct Family {
    const char* name;
    LoopGraph (*make)(int);
    double steps_a_definition;
  };
  for (const Family& family : {Family{"chain", chain, 1.0 / 50},
                               {"readers", readers, 1.0 / 15},
                               {"layers", layers, 5.0 / 9}}) {
    double small = 1e9, large = 1e9;
    size_t steps, kernels;
    LoopGraph few = family.make(5000), many = family.make(20000);
    for (int turn = 0; turn < 2; ++turn) {
      small = std::min(small, seconds(few, &steps, &kernels));
      large = std::min(large, seconds(many, &steps, &kernels));
    }
    std::printf(
        "%s: 20,000 definitions in %.0f ms (5,000 in %.0f), %zu steps, "
        "%zu kernels\n",
        family.name, large * 1e3, small * 1e3, steps, kernels);
    EXPECT_LT(large, 8 * small + 0.1) << family.name;
    EXPECT_LT(steps, 20000 * family.steps_a_definition) << family.name;
  }
}

// One step of Adam for each of forty tensors.
TEST(LargeGraphs, AStepOfAdamIsARunATensorAndAKernelAShape) {
  Writer w;
  std::vector<int> outputs;
  const int64_t shapes[][2] = {{768, 3072}, {768, 768}, {1, 768}, {1, 3072}};
  for (int tensor = 0; tensor < 40; ++tensor) {
    const auto [rows, columns] = shapes[tensor % 4];
    const std::string sizes =
        std::to_string(rows) + ", " + std::to_string(columns);
    const std::string type = "f32[" + sizes + "]";
    const std::string loops = "map (i0 < " + std::to_string(rows) + ", i1 < " +
                              std::to_string(columns) + ") ";
    int g = w.define(type, "input"), p = w.define(type, "input");
    int m = w.define(type, "input"), v = w.define(type, "input");
    int m2 = w.define(type, loops + "add(mul(" + w.at(m) + ", f32(0.9)), mul(" +
                                w.at(g) + ", f32(0.1)))");
    int square =
        w.define(type, loops + "mul(" + w.at(g) + ", " + w.at(g) + ")");
    int v2 =
        w.define(type, loops + "add(mul(" + w.at(v) + ", f32(0.999)), mul(" +
                           w.at(square) + ", f32(0.001)))");
    int root = w.define(type, loops + "sqrt(" + w.at(v2) + ")");
    int p2 = w.define(type, loops + "sub(" + w.at(p) +
                                ", mul(f32(0.001), div(" + w.at(m2) + ", add(" +
                                w.at(root) + ", f32(1e-8)))))");
    outputs.insert(outputs.end(), {m2, v2, p2});
  }
  TargetInfo target;
  LoopGraph graph = w.graph(outputs);
  Schedule schedule = make_schedule(graph, target);
  EXPECT_EQ(verify(schedule), "");
  EXPECT_EQ(schedule.steps.size(), 40u);
  EXPECT_EQ(schedule.kernels.size(), 4u);
  int64_t elements = 0;
  for (int tensor = 0; tensor < 40; ++tensor)
    elements += shapes[tensor % 4][0] * shapes[tensor % 4][1];
  EXPECT_EQ(bytes_moved(schedule, target), elements * 4 * 7);
  EXPECT_TRUE(schedule.arena_bytes.is_const(0));
}

}  // namespace
}  // namespace framejit::codegen
