#include "codegen/cuda/print_cuda.h"

#include <algorithm>
#include <set>

#include "codegen/cuda/body_text.h"
#include "codegen/cuda/fold_text.h"
#include "codegen/cuda/plan.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

namespace {

constexpr int kWarp = 32;

std::string numbered(const char* prefix, int64_t number) {
  return prefix + std::to_string(number);
}

std::string loop_name(size_t loop) { return "i" + std::to_string(loop); }

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

class Printer {
 public:
  Printer(const Kernel& kernel, const CudaOptions& options)
      : kernel_(kernel), options_(options), plan_(plan_cuda(kernel, options)) {}

  CudaKernel run();

 private:
  CudaKernel finish();
  void line(const std::string& text) {
    out_ += std::string(static_cast<size_t>(depth_) * 2, ' ') + text + "\n";
  }
  void open(const std::string& text) {
    line(text);
    ++depth_;
  }
  void close() {
    --depth_;
    line("}");
  }

  // An integer that all threads know, of the type of indices.
  std::string index(const Expr& e);
  std::string parameter(const Expr& e);
  std::string product(const std::vector<Expr>& extents);
  struct Variable {
    std::string name, extent;
  };
  // Variables from a flat number, slowest first.
  void unflatten(const std::vector<Variable>& variables,
                 const std::string& flat);
  // Of the stage's loops; the last one has this name, if any.
  void unflatten_inner(const Stage& stage, const std::string& flat,
                       const std::string& last_name = "");
  void begin_points();
  void begin_columns();
  // base: what the fastest loop is called where several of its points are done.
  std::string element(const Place& place, const CudaBody& body,
                      const std::string& base = "");
  std::string leaf(const Stage& stage, const ScalarNode& node);
  std::string memory_at(const Stage& stage, int64_t load);
  CudaBody body_of(const Stage& stage);
  const StagePlan& plan_of(const Stage& stage) const {
    return plan_.stages[static_cast<size_t>(&stage - kernel_.stages.data())];
  }
  std::string base_name(const Stage& stage) const {
    return "b" + std::to_string(plan_.fastest(kernel_, stage));
  }
  std::string fold_name(const Stage& stage, const Reduction& reduction);
  std::string shared_of(const std::string& fold);

  void stage(const Stage& stage);
  void tiles();
  void row_loop(const Stage& stage);
  void scanned_loop(const Stage& stage);
  // The points from `base` of the fastest loop on, as many as are done at once.
  void points(const Stage& stage, const std::string& base,
              const std::string& at);
  // For each of them, by the number u.
  void open_side_by_side(const std::string& width, const std::string& base) {
    line("#pragma unroll");
    open("for (int u = 0; u < " + width + "; ++u) {");
    line("const idx i" + base.substr(1) + " = " + base + " + u;");
  }
  // What they load as one, and what they store as one: prefixes, or the others.
  std::string vector_of(const Stage& stage, const Place& place);
  void load_vectors(const Stage& stage, const std::string& base);
  bool is_stored_wide(const Stage& stage, size_t store, bool prefixes) const;
  void declare_vectors(const Stage& stage, bool prefixes);
  void store_vectors(const Stage& stage, const std::string& base,
                     bool prefixes);
  void point(const Stage& stage, const std::string& at);
  void step(const Stage& stage, size_t number, const std::string& at);
  void store(const Stage& stage, size_t number, const std::string& value);
  // What a store's place is, null where it is not done.
  std::string condition(const Stage& stage, const Store& store);
  void give_rows(const Stage& stage);
  void sync_before(const Stage& stage);

  // Floats side by side are added up, in pairs, before they go to an
  // accumulator of 64 bits, whose additions are slow: what is added; nothing:
  // it is not.
  ScalarId summed_first(const Stage& stage, const Reduction& reduction) const {
    if (plan_of(stage).width == 1 || has_prefix(stage) ||
        reduction.combiner != Combiner::kSum)
      return kNoScalar;
    const ScalarNode& node = stage.body.node(reduction.value);
    if (node.type == DType::kF32) return reduction.value;
    const bool is_wider = node.type == DType::kF64 &&
                          node.op == ScalarOp::kCast &&
                          stage.body.type(node.in[0]) == DType::kF32;
    return is_wider ? node.in[0] : kNoScalar;
  }
  bool is_alone(const Stage& stage) const {
    return is_sequential(stage, options_) && plan_.team > 1;
  }
  bool is_atomic(const Stage& stage) const {
    return plan_.is_flat_stage || (plan_.team > 1 && !stage.loops.empty() &&
                                   !is_sequential(stage, options_));
  }
  std::string team() const { return std::to_string(plan_.team); }
  std::string kept(int number) const {
    return "kept" + std::to_string(number) + "[" +
           (plan_.width > 1 ? "n * " + std::to_string(plan_.width) + " + u"
                            : "n") +
           "]";
  }

  const Kernel& kernel_;
  const CudaOptions& options_;
  const CudaPlan plan_;
  CudaKernel result_;
  std::string out_, folds_, shared_;
  std::set<std::string> known_folds_, known_shared_;
  std::vector<std::string> narrow_;  // declarations of p0 ...
  int depth_ = 1;
  // Since the threads of a team last waited for each other.
  std::set<int> loaded_, stored_;
};

CudaBody Printer::body_of(const Stage& stage) {
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

std::string Printer::parameter(const Expr& e) {
  auto& known = result_.parameters;
  auto found = std::find(known.begin(), known.end(), e);
  if (found == known.end()) found = known.insert(found, e);
  return numbered("q", found - known.begin());
}

std::string Printer::index(const Expr& e) {
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

std::string Printer::product(const std::vector<Expr>& extents) {
  std::string out;
  for (const Expr& extent : extents) {
    if (extent.is_const(1)) continue;
    out += (out.empty() ? "" : " * ") + index(extent);
  }
  return out.empty() ? "1" : out;
}

void Printer::unflatten(const std::vector<Variable>& variables,
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

void Printer::unflatten_inner(const Stage& stage, const std::string& flat,
                              const std::string& last_name) {
  std::vector<Variable> variables;
  for (const Expr& extent : stage.loops)
    variables.push_back(
        {loop_name(kernel_.loops.size() + variables.size()), index(extent)});
  if (!last_name.empty()) variables.back().name = last_name;
  unflatten(variables, flat);
}

std::string Printer::element(const Place& place, const CudaBody& body,
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
std::string Printer::memory_at(const Stage& stage, int64_t load) {
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

std::string Printer::leaf(const Stage& stage, const ScalarNode& node) {
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

std::string Printer::fold_name(const Stage& stage, const Reduction& reduction) {
  const DType type = stage.body.type(reduction.value);
  std::string name = cuda_fold_name(reduction.combiner, type);
  if (known_folds_.insert(name).second)
    folds_ += print_cuda_fold(reduction.combiner, type);
  return name;
}

std::string Printer::shared_of(const std::string& fold) {
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

void Printer::step(const Stage& stage, size_t number, const std::string& at) {
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

std::string Printer::condition(const Stage& stage, const Store& store) {
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

void Printer::store(const Stage& stage, size_t number,
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
void Printer::point(const Stage& stage, const std::string& at) {
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

std::string Printer::vector_of(const Stage& stage, const Place& place) {
  const DType type = kernel_.arguments[place.argument].type;
  return std::string("vec<") + cuda_memory_type(type) + ", " +
         std::to_string(plan_of(stage).width) + ">";
}

void Printer::load_vectors(const Stage& stage, const std::string& base) {
  for (size_t i = 0; i < stage.loads.size(); ++i) {
    const AccessPlan& access = plan_of(stage).loads[i];
    if (!access.is_wide || access.is_dropped) continue;
    const std::string type = vector_of(stage, stage.loads[i]);
    line("const " + type + " l" + std::to_string(i) + " = *(const " + type +
         "*)&" + element(stage.loads[i], body_of(stage), base) + ";");
  }
  declare_vectors(stage, false);
}

bool Printer::is_stored_wide(const Stage& stage, size_t store,
                             bool prefixes) const {
  const AccessPlan& access = plan_of(stage).stores[store];
  return access.is_wide && !access.is_dropped &&
         (stage.stores[store].prefix_of >= 0) == prefixes;
}

void Printer::declare_vectors(const Stage& stage, bool prefixes) {
  for (size_t i = 0; i < stage.stores.size(); ++i)
    if (is_stored_wide(stage, i, prefixes))
      line(vector_of(stage, stage.stores[i].place) + " s" + std::to_string(i) +
           ";");
}

void Printer::store_vectors(const Stage& stage, const std::string& base,
                            bool prefixes) {
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    if (!is_stored_wide(stage, i, prefixes)) continue;
    const Place& place = stage.stores[i].place;
    line("*(" + vector_of(stage, place) + "*)&" +
         element(place, body_of(stage), base) + " = s" + std::to_string(i) +
         ";");
  }
}

void Printer::points(const Stage& stage, const std::string& base,
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

void Printer::row_loop(const Stage& stage) {
  const StagePlan& plan = plan_of(stage);
  const bool alone = is_alone(stage);
  const bool is_wide = plan.width > 1;
  const std::string width = std::to_string(plan.width);
  const size_t first = kernel_.loops.size();
  const bool is_one = stage.loops.size() == 1;
  // Points side by side: from `b` of the last loop on.
  const std::string base = is_wide ? base_name(stage) : "";
  const std::string flat = !is_one ? "k"
                           : is_wide
                               ? base
                               : numbered("i", static_cast<int64_t>(first));
  const std::string count = product(stage.loops);
  if (plan.turns > 0) {
    line("#pragma unroll");
    open("for (int n = 0; n < " + std::to_string(plan.turns) + "; ++n) {");
    line("const idx " + flat + " = (n * " + team() + " + lane)" +
         (is_wide ? " * " + width : "") + ";");
    open("if (" + flat + " < " + count + ") {");
  } else {
    std::string begin = plan_.team == 1 || alone ? "0" : "lane";
    if (is_wide && begin == "lane") begin += " * " + width;
    const int by = (plan_.team == 1 || alone ? 1 : plan_.team) * plan.width;
    // So that several loads are on their way, where registers are left.
    const bool is_light =
        std::ranges::none_of(stage.reductions, [](const Reduction& reduction) {
          return reduction.combiner == Combiner::kWelford;
        });
    if (!alone && stage.stores.empty() && is_light) line("#pragma unroll 4");
    open(std::string(alone ? "if (lane == 0) " : "") + "for (idx " + flat +
         " = " + begin + "; " + flat + " < " + count + "; " +
         (by == 1 ? "++" + flat : flat + " += " + std::to_string(by)) + ") {");
  }
  if (!is_one) unflatten_inner(stage, flat, is_wide ? base : "");
  if (is_wide) {
    points(stage, base, flat);
  } else {
    point(stage, flat);
  }
  close();
  if (plan.turns > 0) close();
}

// Prefixes by a team: each thread has a few points side by side, all of them
// those of a turn.
void Printer::scanned_loop(const Stage& stage) {
  const StagePlan& plan = plan_of(stage);
  const bool is_wide = plan.width > 1;
  const std::string width = std::to_string(plan.width);
  const std::string base = is_wide ? base_name(stage) : "";
  std::vector<char> scanned(stage.reductions.size(), 0);
  for (const Store& each : stage.stores) {
    if (each.prefix_of >= 0) scanned[each.prefix_of] = 1;
  }
  const CudaBody body = body_of(stage);
  const std::string count = product(stage.loops);
  open("for (idx first = 0; first < " + count +
       "; first += " + std::to_string(plan_.team * plan.width) + ") {");
  line("const idx k = first + lane" + (is_wide ? " * " + width : "") + ";");
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) continue;
    const std::string fold = fold_name(stage, stage.reductions[i]);
    const std::string n = std::to_string(i);
    line(fold + " e" + n + " = none_" + fold + "(), within" + n + "[" + width +
         "];");
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const Store& each = stage.stores[i];
    if (each.prefix_of < 0 || plan.stores[i].is_wide) continue;
    const DType type = kernel_.arguments[each.place.argument].type;
    line(std::string(cuda_memory_type(type)) + "* to" + std::to_string(i) +
         "[" + width + "];");
  }
  open("if (k < " + count + ") {");
  unflatten_inner(stage, "k", base);
  if (is_wide) {
    load_vectors(stage, base);
    open_side_by_side(width, base);
  } else {
    line("const int u = 0;");
  }
  if (has_check(stage.body)) line("bool ok = true;");
  out_ += body.statements(std::string(static_cast<size_t>(depth_) * 2, ' '));
  if (has_check(stage.body)) line("if (!ok) check_failed(failed);");
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) {
      step(stage, i, "k + u");
      continue;
    }
    const std::string n = std::to_string(i);
    line("e" + n + " = step(e" + n + ", " +
         body.name(stage.reductions[i].value) + ", (i64)k + u);");
    line("within" + n + "[u] = e" + n + ";");
  }
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const Store& each = stage.stores[i];
    if (each.prefix_of < 0) {
      store(stage, i, body.name(each.value));
    } else if (!plan.stores[i].is_wide) {
      const std::string when = condition(stage, each);
      line("to" + std::to_string(i) +
           "[u] = " + (when.empty() ? "" : "(" + when + ") ? ") + "&" +
           element(each.place, body) + (when.empty() ? "" : " : 0") + ";");
    }
  }
  if (is_wide) {
    close();
    store_vectors(stage, base, false);
  }
  close();
  for (size_t i = 0; i < scanned.size(); ++i) {
    if (!scanned[i]) continue;
    const std::string n = std::to_string(i);
    const std::string fold = fold_name(stage, stage.reductions[i]);
    line(fold + " total" + n + ";");
    line("const " + fold + " before" + n + " = join(f" + n + ", scan_team<" +
         team() + ">(e" + n + ", none_" + fold + "(), " + shared_of(fold) +
         ", &total" + n + "));");
    line("f" + n + " = join(f" + n + ", total" + n + ");");
  }
  open("if (k < " + count + ") {");
  if (is_wide) {
    unflatten_inner(stage, "k", base);
    declare_vectors(stage, true);
  }
  line("#pragma unroll");
  open("for (int u = 0; u < " + width + "; ++u) {");
  for (size_t i = 0; i < stage.stores.size(); ++i) {
    const int prefix = stage.stores[i].prefix_of;
    if (prefix < 0) continue;
    const std::string n = std::to_string(prefix), to = std::to_string(i);
    const std::string value =
        "result0(join(before" + n + ", within" + n + "[u]))";
    if (plan.stores[i].is_wide) {
      line("s" + to + ".v[u] = " + value + ";");
    } else {
      line("if (to" + to + "[u]) *to" + to + "[u] = " + value + ";");
    }
  }
  close();
  if (is_wide) store_vectors(stage, base, true);
  close();
  close();
}

void Printer::give_rows(const Stage& stage) {
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const Reduction& reduction = stage.reductions[i];
    const std::string n = std::to_string(i);
    const std::string fold = fold_name(stage, reduction);
    const bool scanned = has_prefix(stage) && !is_sequential(stage, options_) &&
                         std::ranges::any_of(stage.stores, [&](const Store& s) {
                           return s.prefix_of == static_cast<int>(i);
                         });
    if (plan_.team > 1 && !stage.loops.empty() && !scanned) {
      const bool is_columns = plan_.shape == CudaShape::kColumns;
      line("f" + n + " = " + (is_columns ? "join_column<" : "join_team<") +
           team() + ">(f" + n + ", " + shared_of(fold) + ");");
    }
    line(numbered("r", reduction.row) + " = result0(f" + n + ");");
    if (combiner_row(reduction.combiner).results > 1) {
      line(numbered("r", reduction.row + 1) + " = result1(f" + n + ");");
    }
  }
}

// What one thread has stored another may load, and the other way about, only
// when all have come here.
void Printer::sync_before(const Stage& stage) {
  if (plan_.team == 1) return;
  const StagePlan& plan = plan_of(stage);
  std::set<int> loads, stores;
  for (size_t i = 0; i < stage.loads.size(); ++i)
    if (!plan.loads[i].is_dropped) loads.insert(stage.loads[i].argument);
  for (size_t i = 0; i < stage.stores.size(); ++i)
    if (!plan.stores[i].is_dropped)
      stores.insert(stage.stores[i].place.argument);
  const bool waits =
      std::ranges::any_of(loads, [&](int a) { return stored_.contains(a); }) ||
      std::ranges::any_of(stores, [&](int a) {
        return stored_.contains(a) || loaded_.contains(a);
      });
  if (waits) {
    line(plan_.shape == CudaShape::kColumns ? "__syncthreads();"
                                            : "sync_team<" + team() + ">();");
    loaded_.clear();
    stored_.clear();
  }
  loaded_.insert(loads.begin(), loads.end());
  stored_.insert(stores.begin(), stores.end());
}

void Printer::stage(const Stage& stage) {
  sync_before(stage);
  open("{");
  for (size_t i = 0; i < stage.reductions.size(); ++i) {
    const std::string fold = fold_name(stage, stage.reductions[i]);
    line(fold + " f" + std::to_string(i) + " = none_" + fold + "();");
  }
  if (stage.loops.empty() || plan_.is_flat_stage) {
    if (plan_of(stage).width > 1) {
      points(stage, base_name(stage), "0");
    } else {
      point(stage, "0");
    }
  } else if (has_prefix(stage) && plan_.team > 1 &&
             !is_sequential(stage, options_)) {
    scanned_loop(stage);
  } else {
    row_loop(stage);
  }
  give_rows(stage);
  close();
}

// Every team one point (or several side by side) a turn.
void Printer::begin_points() {
  const bool is_wide = plan_.shape == CudaShape::kFlat && plan_.width > 1;
  std::vector<Variable> variables;
  for (size_t loop : plan_.order) {
    Expr extent = plan_.loops[loop];
    if (is_wide && loop == plan_.order.back())
      extent = floor_div(extent, Expr(plan_.width));
    result_.points.push_back(extent);
    variables.push_back({loop_name(loop), index(extent)});
  }
  const std::string points = product(result_.points);
  if (plan_.team > 1) line("const int lane = threadIdx.x % " + team() + ";");
  const std::string teams = std::to_string(plan_.block / plan_.team);
  const std::string mine =
      plan_.team == 1 ? "threadIdx.x" : "threadIdx.x / " + team();
  open("for (idx flat = (idx)blockIdx.x * " + teams + " + " + mine +
       "; flat < " + points + "; flat += (idx)gridDim.x * " + teams + ") {");
  if (!is_wide) return unflatten(variables, "flat");
  const std::string last = std::to_string(plan_.order.back());
  variables.back().name = "w" + last;
  unflatten(variables, "flat");
  line("const idx b" + last + " = w" + last + " * " +
       std::to_string(plan_.width) + ";");
}

// Every block a tile of a turn: what lies across it first, to shared memory.
void Printer::tiles() {
  const Stage& stage = kernel_.stages[0];
  const StagePlan& plan = plan_.stages[0];
  const size_t across = plan_.order[plan_.order.size() - 2];
  const size_t along = plan_.order.back();
  std::vector<Variable> variables;
  for (size_t loop : plan_.order) {
    Expr extent = plan_.loops[loop];
    const bool is_tiled = loop == across || loop == along;
    if (is_tiled) extent = floor_div(extent + Expr(kWarp - 1), Expr(kWarp));
    result_.points.push_back(extent);
    variables.push_back(
        {(is_tiled ? "t" : "i") + std::to_string(loop), index(extent)});
  }
  open("for (idx tile = blockIdx.x; tile < " + product(result_.points) +
       "; tile += gridDim.x) {");
  result_.points.emplace_back(plan_.block);
  unflatten(variables, "tile");
  const int rows = plan_.block / kWarp;
  const std::string column = "threadIdx.x % 32";
  const std::string row = "threadIdx.x / 32 + r * " + std::to_string(rows);
  // For each point of the tile, neighbours being so along `fast`.
  auto open_points = [&](size_t slow, size_t fast) {
    line("#pragma unroll");
    open("for (int r = 0; r < " + std::to_string(kWarp / rows) + "; ++r) {");
    std::string inside;
    auto place = [&](size_t loop, const std::string& within) {
      const std::string number = std::to_string(loop), name = "i" + number;
      line("const idx " + name + " = t" + number + " * 32 + " + within + ";");
      inside += (inside.empty() ? "" : " && ") + name + " < " +
                index(plan_.loops[loop]);
    };
    place(slow, row);
    place(fast, column);
    open("if (" + inside + ") {");
  };
  bool is_staged = false;
  for (size_t i = 0; i < stage.loads.size(); ++i) {
    if (!plan.loads[i].is_staged) continue;
    is_staged = true;
    const DType type = kernel_.arguments[stage.loads[i].argument].type;
    const std::string name = "tile" + std::to_string(i);
    shared_ += std::string("  __shared__ ") + cuda_memory_type(type) + " " +
               name + "[32][33];\n";
    open_points(along, across);
    line(name + "[" + row + "][" + column +
         "] = " + element(stage.loads[i], body_of(stage)) + ";");
    close();
    close();
  }
  if (is_staged) line("__syncthreads();");
  open_points(across, along);
  this->stage(stage);
  close();
  close();
  if (is_staged) line("__syncthreads();");
  close();
}

// Every block 32 columns a turn. Behind the last one threads do what that does,
// and store nothing: they have to come to where threads wait for each other.
void Printer::begin_columns() {
  std::vector<Variable> variables;
  for (size_t loop = 0; loop < plan_.loops.size(); ++loop) {
    Expr extent = plan_.loops[loop];
    if (loop + 1 == plan_.loops.size())
      extent = floor_div(extent + Expr(kWarp - 1), Expr(kWarp));
    result_.points.push_back(extent);
    variables.push_back({loop_name(loop), index(extent)});
  }
  const std::string last = std::to_string(plan_.loops.size() - 1);
  const std::string columns = index(plan_.loops.back());
  variables.back().name = "t" + last;
  line("const int lane = threadIdx.x / " + std::to_string(kWarp) + ";");
  open("for (idx tile = blockIdx.x; tile < " + product(result_.points) +
       "; tile += gridDim.x) {");
  result_.points.emplace_back(kWarp);
  unflatten(variables, "tile");
  line("const idx c" + last + " = t" + last + " * " + std::to_string(kWarp) +
       " + threadIdx.x % " + std::to_string(kWarp) + ";");
  line("const bool active = c" + last + " < " + columns + ";");
  line("const idx i" + last + " = active ? c" + last + " : " + columns +
       " - 1;");
}

CudaKernel Printer::run() {
  result_.name = kernel_.name;
  for (const Stage& each : kernel_.stages) {
    result_.refused = cuda_refuses(each.body);
    if (!result_.refused.empty()) return std::move(result_);
  }
  result_.team = plan_.team;
  result_.block = plan_.block;
  result_.width = plan_.width;
  result_.multiples = plan_.multiples;
  result_.alignments = plan_.alignments;

  if (plan_.shape == CudaShape::kTiles) {
    tiles();
    return finish();
  }
  if (plan_.shape == CudaShape::kColumns) {
    begin_columns();
  } else {
    begin_points();
  }
  for (size_t i = 0; i < kernel_.row_types.size(); ++i) {
    line(std::string(cuda_type(kernel_.row_types[i])) + " " +
         numbered("r", static_cast<int64_t>(i)) + ";");
  }
  for (size_t i = 0; i < plan_.kept.size(); ++i) {
    line(std::string(cuda_memory_type(plan_.kept[i])) + " " +
         numbered("kept", static_cast<int64_t>(i)) + "[" +
         std::to_string(plan_.turns * plan_.width) + "];");
  }
  for (const Stage& each : kernel_.stages) stage(each);
  close();
  return finish();
}

CudaKernel Printer::finish() {
  result_.waits = plan_.team > 1 || !shared_.empty();
  std::string text = "typedef " +
                     std::string(options_.wide_indices ? "i64" : "i32") +
                     " idx;\n" + folds_;
  text += "extern \"C\" __global__ void __launch_bounds__(" +
          std::to_string(plan_.block) + ") " + kernel_.name + "(\n    ";
  for (size_t i = 0; i < kernel_.arguments.size(); ++i) {
    const KernelArgument& argument = kernel_.arguments[i];
    text += std::string(argument.is_written ? "" : "const ") +
            cuda_memory_type(argument.type) + "* __restrict__ " +
            numbered("a", static_cast<int64_t>(i)) + ", ";
  }
  for (size_t i = 0; i < result_.parameters.size(); ++i) {
    text += std::string(result_.parameters[i].is_float() ? "double" : "i64") +
            " q" + std::to_string(i) + ", ";
  }
  text += "i32* __restrict__ failed) {\n" + shared_;
  for (const std::string& declared : narrow_) text += "  " + declared + "\n";
  result_.source = text + out_ + "}\n";
  return std::move(result_);
}

}  // namespace

CudaKernel print_cuda(const Kernel& kernel, const CudaOptions& options) {
  return Printer(kernel, options).run();
}

}  // namespace framejit::codegen
