#include "codegen/loops/interpreter.h"

#include <cstring>
#include <memory>

#include "codegen/loops/accumulator.h"
#include "codegen/scalar/evaluate.h"
#include "guards/result.h"

namespace framejit::codegen {
namespace {

struct Failure {
  std::string message;
};

// A buffer of this run.
struct View {
  DType type = DType::kF32;
  std::vector<int64_t> sizes, strides;
  char* first = nullptr;

  int64_t count() const {
    int64_t out = 1;
    for (int64_t size : sizes) out *= size;
    return out;
  }
  char* at(const std::vector<int64_t>& indices) const {
    int64_t place = 0;
    for (size_t dim = 0; dim < sizes.size(); ++dim) {
      FJ_CHECK(indices[dim] >= 0 && indices[dim] < sizes[dim],
               "an index out of range");
      place += indices[dim] * strides[dim];
    }
    return first + place * static_cast<int64_t>(dtype_size(type));
  }
};

// Index with its expressions evaluated.
struct PlainIndex {
  int64_t offset;
  std::vector<int64_t> coefficients;
  ScalarId data;

  int64_t at(const std::vector<int64_t>& loops,
             const std::vector<Element>& values) const {
    int64_t out = offset;
    for (size_t i = 0; i < loops.size(); ++i) out += coefficients[i] * loops[i];
    if (data != kNoScalar) out += static_cast<int64_t>(values[data]);
    return out;
  }
};

struct PlainAccess {
  const View* view;
  std::vector<PlainIndex> indices;
  ScalarId when;
};

// Calls f(point) for every point of the extents, the last fastest.
template <class F>
void for_each_point(const std::vector<int64_t>& extents, F&& f) {
  std::vector<int64_t> point(extents.size(), 0);
  for (int64_t extent : extents)
    if (extent <= 0) return;
  for (;;) {
    f(point);
    size_t dim = extents.size();
    while (dim > 0 && ++point[dim - 1] == extents[dim - 1]) point[--dim] = 0;
    if (dim == 0) return;
  }
}

class Interpreter {
 public:
  Interpreter(const LoopGraph& graph, const int64_t* symbols,
              const ExternCall& call)
      : graph_(graph), symbols_(symbols), call_(call) {}

  void run(std::span<const void* const> inputs,
           std::span<void* const> outputs) {
    views_.resize(graph_.buffers.size());
    memory_.resize(graph_.buffers.size());
    for (size_t i = 0; i < views_.size(); ++i) shape(i);
    for (const Expr& number : graph_.numbers)
      numbers_.push_back(number_value(number));
    size_t input = 0;
    for (const Definition& definition : graph_.definitions) {
      if (definition.kind == DefinitionKind::kInput) {
        FJ_CHECK(input < inputs.size(), "an input without memory");
        // Nothing writes to it.
        place(definition.results[0],
              static_cast<char*>(const_cast<void*>(inputs[input++])));
      } else {
        for (BufferId result : definition.results) allocate(result);
        execute(definition);
      }
    }
    FJ_CHECK(outputs.size() == graph_.outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      View target = views_[graph_.outputs[i]];
      target.first = static_cast<char*>(outputs[i]);
      copy(views_[graph_.outputs[i]], target);
    }
  }

 private:
  int64_t value_of(const Expr& e) const {
    int64_t out;
    if (!e.try_evaluate(symbols_, &out))
      throw Failure{e.str() + " has no value"};
    return out;
  }
  Element number_value(const Expr& e) const {
    return static_cast<Element>(value_of(e));
  }
  std::vector<int64_t> values_of(const std::vector<Expr>& list) const {
    std::vector<int64_t> out;
    for (const Expr& e : list) out.push_back(value_of(e));
    return out;
  }

  void shape(size_t id) {
    const Buffer& buffer = graph_.buffers[id];
    View& view = views_[id];
    view.type = buffer.type;
    view.sizes = values_of(buffer.sizes);
    view.strides = values_of(buffer.strides);
    for (int64_t size : view.sizes)
      if (size < 0) throw Failure{"a negative size"};
  }

  void place(BufferId id, char* first) {
    views_[id].first = first;
    for (size_t i = 0; i < views_.size(); ++i) {
      if (graph_.buffers[i].alias_of != id) continue;
      views_[i].first =
          first + value_of(graph_.buffers[i].offset) *
                      static_cast<int64_t>(dtype_size(views_[i].type));
    }
  }

  void allocate(BufferId id) {
    const View& view = views_[id];
    int64_t elements = 1;
    for (size_t dim = 0; dim < view.sizes.size(); ++dim) {
      if (view.sizes[dim] == 0) elements = 0;
      if (elements == 0) break;
      FJ_CHECK(view.strides[dim] >= 0, "memory with a negative stride");
      elements += (view.sizes[dim] - 1) * view.strides[dim];
    }
    // Never read before it is written: a pattern that shows if it is.
    memory_[id].assign(elements * dtype_size(view.type) + 8, '\xa5');
    place(id, memory_[id].data());
  }

  void copy(const View& from, const View& to) {
    for_each_point(from.sizes, [&](const std::vector<int64_t>& point) {
      std::memcpy(to.at(point), from.at(point), dtype_size(from.type));
    });
  }

  // ---- elements

  std::vector<PlainIndex> plain(const std::vector<Index>& indices) const {
    std::vector<PlainIndex> out;
    for (const Index& index : indices)
      out.push_back(
          {value_of(index.offset), values_of(index.coefficients), index.data});
    return out;
  }

  std::vector<int64_t> indices_at(const std::vector<PlainIndex>& indices,
                                  const std::vector<int64_t>& loops) const {
    std::vector<int64_t> out;
    for (const PlainIndex& index : indices)
      out.push_back(index.at(loops, values_));
    return out;
  }

  void prepare(const Definition& definition) {
    accesses_.clear();
    for (const Access& access : definition.accesses)
      accesses_.push_back(
          {&views_[access.buffer], plain(access.indices), access.when});
  }

  Element leaf(const ScalarNode& node, const std::vector<int64_t>& loops) {
    switch (node.op) {
      case ScalarOp::kIndex:
        return static_cast<Element>(loops[node.payload]);
      case ScalarOp::kNumber:
        return numbers_[node.payload];
      case ScalarOp::kLoad: {
        const PlainAccess& access = accesses_[node.payload];
        if (access.when != kNoScalar && !values_[access.when]) return 0;
        return load_element(node.type,
                            access.view->at(indices_at(access.indices, loops)));
      }
      default:
        throw InternalError(__FILE__, __LINE__, "not a leaf of loops");
    }
  }

  Element element(const Definition& definition,
                  const std::vector<int64_t>& loops) {
    bool holds = evaluate(
        definition.body,
        [&](const ScalarNode& node) { return leaf(node, loops); }, &values_);
    if (!holds) throw Failure{"a check failed"};
    return values_[definition.value];
  }

  void store(BufferId id, const std::vector<int64_t>& indices, Element value) {
    store_element(views_[id].type, value, views_[id].at(indices));
  }

  // ---- definitions

  void execute(const Definition& definition) {
    if (definition.kind == DefinitionKind::kExtern) return call(definition);
    prepare(definition);
    std::vector<int64_t> loops = values_of(definition.loops);
    switch (definition.kind) {
      case DefinitionKind::kMap:
        for_each_point(loops, [&](const std::vector<int64_t>& point) {
          store(definition.results[0], point, element(definition, point));
        });
        break;
      case DefinitionKind::kReduce:
        reduce(definition, loops);
        break;
      case DefinitionKind::kScan:
        scan(definition, loops);
        break;
      case DefinitionKind::kUpdate:
        update(definition, loops);
        break;
      default:
        break;
    }
  }

  void reduce(const Definition& definition, const std::vector<int64_t>& loops) {
    const size_t kept = loops.size() - definition.reduced;
    const std::vector<int64_t> outer(loops.begin(), loops.begin() + kept);
    const std::vector<int64_t> inner(loops.begin() + kept, loops.end());
    const DType type = definition.body.type(definition.value);
    for_each_point(outer, [&](const std::vector<int64_t>& point) {
      std::vector<Element> elements;
      std::vector<int64_t> all(point);
      all.resize(loops.size());
      for_each_point(inner, [&](const std::vector<int64_t>& rest) {
        std::copy(rest.begin(), rest.end(), all.begin() + kept);
        elements.push_back(element(definition, all));
      });
      auto results = combine(*definition.combiner, type, elements);
      for (size_t i = 0; i < definition.results.size(); ++i)
        store(definition.results[i], point, results[i]);
    });
  }

  void scan(const Definition& definition, const std::vector<int64_t>& loops) {
    const DType type = definition.body.type(definition.value);
    Accumulator prefix(*definition.combiner, type);
    for_each_point(loops, [&](const std::vector<int64_t>& point) {
      if (point.back() == 0) prefix = Accumulator(*definition.combiner, type);
      prefix.add(element(definition, point));
      store(definition.results[0], point, prefix.value());
    });
  }

  void update(const Definition& definition, const std::vector<int64_t>& loops) {
    const View& view = views_[definition.results[0]];
    if (definition.base != kNoBuffer) copy(views_[definition.base], view);
    const std::vector<PlainIndex> target = plain(definition.target);
    if (!definition.combiner) {
      for_each_point(loops, [&](const std::vector<int64_t>& point) {
        Element value = element(definition, point);
        store(definition.results[0], indices_at(target, point), value);
      });
      return;
    }
    std::vector<Accumulator> elements;
    for_each_point(view.sizes, [&](const std::vector<int64_t>& point) {
      elements.emplace_back(*definition.combiner, view.type,
                            load_element(view.type, view.at(point)));
    });
    for_each_point(loops, [&](const std::vector<int64_t>& point) {
      Element value = element(definition, point);
      std::vector<int64_t> indices = indices_at(target, point);
      view.at(indices);  // checks the range
      int64_t place = 0;
      for (size_t dim = 0; dim < indices.size(); ++dim)
        place = place * view.sizes[dim] + indices[dim];
      elements[place].add(value);
    });
    size_t place = 0;
    for_each_point(view.sizes, [&](const std::vector<int64_t>& point) {
      store_element(view.type, elements[place++].value(), view.at(point));
    });
  }

  void call(const Definition& definition) {
    std::vector<void*> operands, results;
    for (BufferId id : definition.operands)
      operands.push_back(views_[id].first);
    for (BufferId id : definition.results) results.push_back(views_[id].first);
    if (!call_ || !call_(definition, operands, results))
      throw Failure{"an extern call failed"};
  }

  const LoopGraph& graph_;
  const int64_t* symbols_;
  const ExternCall& call_;
  std::vector<View> views_;
  std::vector<std::vector<char>> memory_;
  std::vector<Element> numbers_;
  std::vector<PlainAccess> accesses_;  // of the definition that runs
  std::vector<Element> values_;        // of its element
};

}  // namespace

std::string interpret(const LoopGraph& graph, const int64_t* symbols,
                      std::span<const void* const> inputs,
                      std::span<void* const> outputs, const ExternCall& call) {
  try {
    Interpreter(graph, symbols, call).run(inputs, outputs);
    return "";
  } catch (const Failure& failure) {
    return failure.message;
  }
}

}  // namespace framejit::codegen
