#include "codegen/cuda/print_cuda.h"

#include <algorithm>

#include "codegen/cuda/fold_text.h"
#include "codegen/cuda/printer.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

void CudaPrinter::row_loop(const Stage& stage) {
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
void CudaPrinter::scanned_loop(const Stage& stage) {
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

void CudaPrinter::give_rows(const Stage& stage) {
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
void CudaPrinter::sync_before(const Stage& stage) {
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

void CudaPrinter::stage(const Stage& stage) {
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
void CudaPrinter::begin_points() {
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
void CudaPrinter::tiles() {
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
void CudaPrinter::begin_columns() {
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

CudaKernel CudaPrinter::run() {
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

CudaKernel CudaPrinter::finish() {
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

CudaKernel print_cuda(const Kernel& kernel, const CudaOptions& options) {
  return CudaPrinter(kernel, options).run();
}

}  // namespace framejit::codegen
