#include <algorithm>

#include "codegen/cuda/fold_text.h"
#include "codegen/cuda/printer.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

namespace {

// How elements of memory are put together: of the prelude.
const char* update_of(Combiner combiner) {
  switch (*combiner_row(combiner).operation) {
    case ScalarOp::kAdd:
      return "with_add";
    case ScalarOp::kMul:
      return "with_mul";
    case ScalarOp::kMin:
      return "with_min";
    case ScalarOp::kMax:
      return "with_max";
    case ScalarOp::kOr:
      return "with_or";
    default:
      return "with_and";
  }
}

}  // namespace

CudaBody CudaPrinter::body_of(const Stage& stage) {
  std::vector<ScalarId> used;
  auto note = [&](const Place& place) {
    used.push_back(place.when);
    for (const auto& data : place.data) used.push_back(data.first);
  };
  for (const Place& place : stage.loads) note(place);
  for (const Reduction& reduction : stage.reductions)
    used.push_back(reduction.value);
  for (const Store& store : stage.stores) {
    used.push_back(store.value);
    note(store.place);
  }
  for (const auto& row : stage.rows) used.push_back(row.first);
  return CudaBody(
      stage.body,
      [this, &stage](const ScalarNode& node) { return leaf(stage, node); },
      used);
}

std::string CudaPrinter::parameter(const Expr& e) {
  auto& known = result_.parameters;
  auto found = std::find(known.begin(), known.end(), e);
  if (found == known.end()) found = known.insert(found, e);
  return numbered("q", found - known.begin());
}

std::string CudaPrinter::index(const Expr& e) {
  if (e.is_const()) {
    std::string text = std::to_string(e.constant());
    if (options_.wide_indices) text += "LL";
    return e.constant() < 0 ? "(" + text + ")" : text;
  }
  std::string name = parameter(e);
  if (options_.wide_indices) return name;
  std::string declared =
      "const idx p" + name.substr(1) + " = (idx)" + name + ";";
  if (std::ranges::find(narrow_, declared) == narrow_.end())
    narrow_.push_back(declared);
  return "p" + name.substr(1);
}

std::string CudaPrinter::product(const std::vector<Expr>& extents) {
  std::string out;
  for (const Expr& extent : extents) {
    if (extent.is_const(1)) continue;
    out += (out.empty() ? "" : " * ") + index(extent);
  }
  return out.empty() ? "1" : out;
}

void CudaPrinter::unflatten(const std::vector<Variable>& variables,
                            const std::string& flat) {
  std::string rest = flat;
  for (size_t k = variables.size(); k-- > 0;) {
    const auto& [name, extent] = variables[k];
    if (k == 0) {
      line("const idx " + name + " = " + rest + ";");
      return;
    }
    line("const idx " + name + " = " + rest + " % " + extent + ";");
    line("const idx rest_" + name + " = " + rest + " / " + extent + ";");
    rest = "rest_" + name;
  }
}

void CudaPrinter::unflatten_inner(const Stage& stage, const std::string& flat,
                                  const std::string& last_name) {
  std::vector<Variable> variables;
  for (const Expr& extent : stage.loops)
    variables.push_back(
        {loop_name(kernel_.loops.size() + variables.size()), index(extent)});
  if (!last_name.empty()) variables.back().name = last_name;
  unflatten(variables, flat);
}

std::string CudaPrinter::element(const Place& place, const CudaBody& body,
                                 const std::string& base) {
  std::string out;
  auto term = [&](const std::string& text) {
    out += (out.empty() ? "" : " + ") + text;
  };
  for (size_t k = 0; k < place.strides.size(); ++k) {
    const Expr& stride = place.strides[k];
    if (stride.is_const(0)) continue;
    std::string name = numbered("i", static_cast<int64_t>(k));
    // Of wide accesses, along the fastest loop alone.
    if (!base.empty() && stride.is_const(1) && name == "i" + base.substr(1))
      name = base;
    term(stride.is_const(1) ? name : name + " * " + index(stride));
  }
  for (const auto& [id, stride] : place.data) {
    term(stride.is_const(1) ? body.name(id)
                            : body.name(id) + " * " + index(stride));
  }
  if (out.empty() || !place.offset.is_const(0)) term(index(place.offset));
  return numbered("a", place.argument) + "[" + out + "]";
}

// Memory, as a load sees it.
std::string CudaPrinter::memory_at(const Stage& stage, int64_t load) {
  const AccessPlan& access = plan_of(stage).loads[load];
  if (access.kept >= 0) return kept(access.kept);
  if (access.is_staged) {
    return "tile" + std::to_string(load) +
           "[threadIdx.x % 32][threadIdx.x / 32 + r * " +
           std::to_string(plan_.block / kWarp) + "]";
  }
  if (access.is_wide) return "l" + std::to_string(load) + ".v[u]";
  return element(stage.loads[load], body_of(stage));
}

std::string CudaPrinter::leaf(const Stage& stage, const ScalarNode& node) {
  switch (node.op) {
    case ScalarOp::kIndex: {
      std::string name = numbered("i", node.payload);
      return options_.wide_indices ? name : "(i64)" + name;
    }
    case ScalarOp::kNumber: {
      const Expr& number = kernel_.numbers[node.payload];
      if (number.is_const())
        return cuda_constant(DType::kI64,
                             static_cast<Element>(number.constant()));
      return parameter(number);
    }
    case ScalarOp::kRow:
      return numbered("r", node.payload);
    default:
      break;
  }
  const Place& place = stage.loads[node.payload];
  std::string text = memory_at(stage, node.payload);
  if (node.type == DType::kBool) text += " != 0";
  std::string when;
  if (!place.data.empty() && has_check(stage.body)) when = "ok";
  if (place.when != kNoScalar) {
    when += (when.empty() ? "" : " && ") + body_of(stage).name(place.when);
  }
  if (when.empty()) return text;
  return when + " ? " + text + " : " + cuda_constant(node.type, 0);
}

std::string CudaPrinter::fold_name(const Stage& stage,
                                   const Reduction& reduction) {
  const DType type = stage.body.type(reduction.value);
  std::string name = cuda_fold_name(reduction.combiner, type);
  if (known_folds_.insert(name).second)
    folds_ += print_cuda_fold(reduction.combiner, type);
  return name;
}

std::string CudaPrinter::shared_of(const std::string& fold) {
  const bool is_columns = plan_.shape == CudaShape::kColumns;
  if (!is_columns && plan_.team <= kWarp) return "(" + fold + "*)0";
  const std::string name = "shared_" + fold;
  if (known_shared_.insert(fold).second) {
    const int places = is_columns ? plan_.block : plan_.team / kWarp;
    shared_ += "  __shared__ " + fold + " " + name + "[" +
               std::to_string(places) + "];\n";
  }
  return name;
}

void CudaPrinter::step(const Stage& stage, size_t number,
                       const std::string& at) {
  const Reduction& reduction = stage.reductions[number];
  const std::string state = numbered("f", static_cast<int64_t>(number));
  if (ScalarId part = summed_first(stage, reduction); part != kNoScalar) {
    line("t" + std::to_string(number) + "[u] = " + body_of(stage).name(part) +
         ";");
    return;
  }
  line(state + " = step(" + state + ", " +
       body_of(stage).name(reduction.value) + ", (i64)" + at + ");");
}

std::string CudaPrinter::condition(const Stage& stage, const Store& store) {
  std::string out;
  auto both = [&](const std::string& text) {
    out += (out.empty() ? "" : " && ") + text;
  };
  if (plan_.shape == CudaShape::kColumns) both("active");
  if (stage.loops.empty() && plan_.team > 1) both("lane == 0");
  if (has_check(stage.body)) both("ok");
  if (store.place.when != kNoScalar)
    both(body_of(stage).name(store.place.when));
  return out;
}

void CudaPrinter::store(const Stage& stage, size_t number,
                        const std::string& value) {
  const Store& store = stage.stores[number];
  const AccessPlan& access = plan_of(stage).stores[number];
  const DType type = kernel_.arguments[store.place.argument].type;
  if (access.kept >= 0) line(kept(access.kept) + " = " + value + ";");
  if (access.is_dropped) return;
  std::string text;
  if (access.is_wide) {
    text = "s" + std::to_string(number) + ".v[u] = " + value + ";";
    line(text);
    return;
  }
  const std::string place = element(store.place, body_of(stage));
  const std::string memory = std::string("(") + cuda_memory_type(type) + ")";
  if (!store.combiner) {
    text = place + " = " + value + ";";
  } else {
    const std::string op = update_of(*store.combiner);
    text = is_atomic(stage)
               ? "update<" + op + ">(&" + place + ", " + memory + value + ");"
               : place + " = " + op + "::of(" + place + ", " + memory + value +
                     ");";
  }
  const std::string when = condition(stage, store);
  line(when.empty() ? text : "if (" + when + ") " + text);
}

// One point of a stage: loads, arithmetic, stores, accumulators.
void CudaPrinter::point(const Stage& stage, const std::string& at) {
  const StagePlan& plan = plan_of(stage);
  for (size_t i = 0; i < stage.loads.size(); ++i) {
    const AccessPlan& access = plan.loads[i];
    if (access.kept < 0 || access.is_dropped) continue;
    line(kept(access.kept) + " = " +
         (access.is_wide ? "l" + std::to_string(i) + ".v[u]"
                         : element(stage.loads[i], body_of(stage))) +
         ";");
  }
  if (has_check(stage.body)) line("bool ok = true;");
  out_ += body_of(stage).statements(
      std::string(static_cast<size_t>(depth_) * 2, ' '));
  if (has_check(stage.body)) line("if (!ok) check_failed(failed);");
  for (size_t i = 0; i < stage.reductions.size(); ++i) step(stage, i, at);
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const Store& each = stage.stores[i];
    store(stage, i,
          each.prefix_of >= 0 ? "result0(" + numbered("f", each.prefix_of) + ")"
                              : body_of(stage).name(each.value));
  }
  for (auto [id, row] : stage.rows) {
    line(numbered("r", row) + " = " + body_of(stage).name(id) + ";");
  }
}

std::string CudaPrinter::vector_of(const Stage& stage, const Place& place) {
  const DType type = kernel_.arguments[place.argument].type;
  return std::string("vec<") + cuda_memory_type(type) + ", " +
         std::to_string(plan_of(stage).width) + ">";
}

void CudaPrinter::load_vectors(const Stage& stage, const std::string& base) {
  for (size_t i = 0; i < stage.loads.size(); ++i) {
    const AccessPlan& access = plan_of(stage).loads[i];
    if (!access.is_wide || access.is_dropped) continue;
    const std::string type = vector_of(stage, stage.loads[i]);
    line("const " + type + " l" + std::to_string(i) + " = *(const " + type +
         "*)&" + element(stage.loads[i], body_of(stage), base) + ";");
  }
  declare_vectors(stage, false);
}

bool CudaPrinter::is_stored_wide(const Stage& stage, size_t store,
                                 bool prefixes) const {
  const AccessPlan& access = plan_of(stage).stores[store];
  return access.is_wide && !access.is_dropped &&
         (stage.stores[store].prefix_of >= 0) == prefixes;
}

void CudaPrinter::declare_vectors(const Stage& stage, bool prefixes) {
  for (size_t i = 0; i < stage.stores.size(); ++i)
    if (is_stored_wide(stage, i, prefixes))
      line(vector_of(stage, stage.stores[i].place) + " s" + std::to_string(i) +
           ";");
}

void CudaPrinter::store_vectors(const Stage& stage, const std::string& base,
                                bool prefixes) {
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    if (!is_stored_wide(stage, i, prefixes)) continue;
    const Place& place = stage.stores[i].place;
    line("*(" + vector_of(stage, place) + "*)&" +
         element(place, body_of(stage), base) + " = s" + std::to_string(i) +
         ";");
  }
}

void CudaPrinter::points(const Stage& stage, const std::string& base,
                         const std::string& at) {
  const std::string width = std::to_string(plan_of(stage).width);
  load_vectors(stage, base);
  for (size_t i = 0; i < stage.reductions.size(); ++i)
    if (summed_first(stage, stage.reductions[i]) != kNoScalar)
      line("float t" + std::to_string(i) + "[" + width + "];");
  open_side_by_side(width, base);
  point(stage, at + " + u");
  close();
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const std::string n = std::to_string(i);
    if (summed_first(stage, stage.reductions[i]) != kNoScalar)
      line("f" + n + " = step(f" + n + ", in_pairs<" + width + ">(t" + n +
           "), (i64)" + at + ");");
  }
  store_vectors(stage, base, false);
}

}  // namespace framejit::codegen
