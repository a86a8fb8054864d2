// The x86-64 emitter of one predicate.
//
// The needed sources form a forest; it is walked parents first, the value of
// the source at hand in rax. What later steps need again is kept in a slot of
// the stack frame, or known as a constant: an object whose identity the checks
// so far have proven (by Is, by a dict or type version). A constant that a
// checked dict holds needs no reference of ours. rdi, rsi, rdx, rcx keep the
// predicate's arguments (args, function, objects, symbols); r8-r11 are scratch.
// Guards about several sources, and C calls from the roots, come last.
//
// A large predicate has its walk twice (dict_epoch.h). While no dict of the
// process has changed since the last call it held for, the dicts are not read:
// it only has to be those. Where that fails, the walk that reads them decides.
#pragma once

#include <asmjit/x86.h>

#include <functional>
#include <set>
#include <unordered_map>

#include "guards/emit/emit_plan.h"
#include "guards/emit/watchers.h"
#include "guards/set/evaluate.h"
#include "guards/set/object_layout.h"

namespace framejit {

class Emitter {
 public:
  Emitter(const GuardSet& set, PyObject* const* args, PyObject* function,
          const std::vector<SourceForm>& forms);
  std::unique_ptr<ArmedPredicate> emit();

 private:
  // What is to be done for a source.
  struct Plan {
    bool needed = false;
    bool temporary = false;  // below a GetSet: only by C calls from the roots
    bool shared = false;     // used by guards about several sources: own slot
    std::vector<int> guards;
    int gather = -1;   // index in the objects array
    size_t below = 0;  // sources that lead through it
    std::vector<const Source*> children;
  };
  // What is known about its value at this point of the code.
  struct Known {
    bool in_group = false;  // checked with tensors alike, behind the walk
    bool storage_checked = false;
    int slot = -1;
    PyObject* constant = nullptr;
    PyTypeObject* type = nullptr;  // checked
    bool is_dict = false;          // checked
    bool dict_version = false;     // checked: content as when emitted
    bool dict_shape = false;       // checked: key table laid out alike
    bool instance_version = false;
    bool instance_shape = false;
    bool instance_layout = false;
    bool tensor_checked = false;  // a Tensor guard ran: dim known
  };
  struct Node : Plan, Known {};
  // A step of a look-up that ends in an entry or an empty hash slot.
  struct ProbeStep {
    size_t slot;
    int64_t index;
    PyObject* key;
  };

  // ---- emit_x64.cpp: the walk
  void plan();
  void need(const Source* source);
  bool plan_tensor(const Guard& guard);
  void visit(const Source* source, int depth);
  void walk();                // what emit_first() has left
  void fail_for_collected();  // in r14
  void walk_both_ways();      // ends where it held
  bool many_dicts() const;
  bool is_small_argument(const Source* root);
  void emit_first();  // small arguments and the thread state
  void emit_thread_state();
  void emit_shared_guards();
  void emit_root_calls();
  int allocate_slot();
  Node& node(const Source* source) { return nodes_[source->id]; }
  Form form(const Source* source);
  bool is_namespace(const Source* source);
  PyObject* value(const Source* source) { return values_.get(source); }
  void bring(const Source* source);  // rax = its value
  // A field of its value: from rax, or from the place itself when the object
  // is known and lies near base_; else brings it.
  asmjit::x86::Mem field(const Source* source, int offset);
  void choose_base();
  void keep(PyObject* object) { kept_.push_back(Ref::borrow(object)); }
  // What the other walk assumes, too, or can do without, is no pin.
  void pin(Pin pin) {
    if (!dicts_unchanged_) pins_.push_back(pin);
  }
  asmjit::x86::Mem slot_at(int slot) const;
  asmjit::x86::Mem saved(int argument) const;

  // ---- small pieces
  void fail_when(asmjit::x86::CondCode condition);
  void fail_unless_equal(asmjit::x86::Mem memory, uint64_t value);
  void fail_unless_equal(const asmjit::x86::Gp& reg, const void* pointer);
  void fail_if_null(const asmjit::x86::Gp& reg);
  // A fact no later step needs: in a large predicate collected in r14, for one
  // branch at the end.
  void fail_unless_zero(const asmjit::x86::Mem& memory);
  void set_r11(uint64_t value);
  void forget_r11() { r11_known_ = false; }
  void call(const void* function);  // arguments are set; restores nothing
  void restore_arguments();
  void check_result();  // fails when eax is 0
  void check_type(const Source* source, PyTypeObject* type);  // rax
  void check_flag(const Source* source, unsigned long flag);  // rax
  // source: read less particularly when the type keeps changing.
  void check_type_version(const Source* source, PyTypeObject* type);
  static unsigned type_version(PyTypeObject* type);
  void out_of_line(std::function<void()> body) {
    late_.push_back(std::move(body));
  }

  // ---- emit_loads.cpp
  void load(const Source* source);  // sets rax or node().constant
  void load_argument(const Source* source);
  void load_function(const Source* source);
  void load_constant(const Source* source);
  void load_cell_contents(const Source* source);
  void load_method_part(const Source* source);
  void load_type_of(const Source* source);
  void load_instance_dict(const Source* source);
  void load_slot_member(const Source* source);
  void load_function_part(const Source* source);
  void load_instance_attr(const Source* source);
  void load_dict_item(const Source* source);
  void load_step(const Source* source);  // by a C call
  void load_type_attr(const Source* source);
  void load_member(const Source* source);
  void load_sequence_item(const Source* source);
  void load_int(const Source* source);
  void tuple_item(const asmjit::x86::Gp& tuple, int64_t index);
  // The dict in rax: keys in r9, layout checked once.
  void dict_keys_in_r9(PyObject* dict, bool* checked);
  void slot_value(PyObject* dict, Py_ssize_t entry, PyObject* stored_key,
                  bool load_it);
  bool absent_by_probe(PyObject* dict, PyObject* key, bool* checked,
                       const Source* source, Pin::Kind kind);
  bool absent_in_table(const DictKeys* keys, PyObject* key, size_t* last);
  // rax: the instance's dict; false: it has another layout than a dict.
  void instance_dict_in_rax(const Source* object);
  void inline_values_in_r8(const Source* object);
  // The content of the source's dict is as now; emits what proves it.
  bool check_dict_version(const Source* source);
  // So it is, and nothing need prove it.
  bool is_settled(const Source* source);
  void instance_version(const Source* object, PyObject* dict);  // rax: dict
  void pin_slot(Pin::Kind kind, const Source* source, PyObject* dict,
                Py_ssize_t entry);
  static bool can_use_version(PyObject* dict);
  static bool probe(const DictKeys* keys, PyObject* key,
                    std::vector<ProbeStep>* steps);
  static Py_ssize_t entry_of(PyObject* dict, PyObject* key);

  // ---- emit_guards.cpp
  void emit_guard(const Source* source, const Guard& guard);
  void emit_by_kind(const Source* source, const Guard& guard);
  void emit_type(const Source* source, const Guard& guard);
  void emit_identity(const Source* source, const Guard& guard);
  void emit_loaded(const Source* source, const Guard& guard);
  void emit_type_attr(const Source* source, const Guard& guard);
  void emit_same(const Source* source, const Guard& guard);
  void emit_shape_expr(const Source* source, const Guard& guard);
  void emit_thread_state_guard(const Source* source, const Guard& guard);
  void emit_equals(const Source* source, const Guard& guard);
  // The __name__ of a built-in function: library code asks for one a call.
  bool is_function_name(const Source* source);
  void emit_function_name(const Source* function, const Guard& guard);
  void emit_key_guard(const Source* source, const Guard& guard);
  void emit_no_instance_attr(const Source* source, const Guard& guard);
  void emit_dict_keys(const Source* source, const Guard& guard);
  void emit_length(const Source* source, const Guard& guard);
  int length_offset(const Source* source);
  void emit_c_method(const Source* source, const Guard& guard);
  void emit_call_guard(const Source* source, const Guard& guard);
  void emit_no_tensor_attrs(const Source* source, const Guard& guard);
  void emit_nothing_stored(const Source* source, const Guard& guard);
  // Out of line: `from` asks C code about the value in rax, then resumes here.
  void emit_unusual_case(const Source* source, const Guard& guard,
                         const asmjit::Label& from,
                         const asmjit::Label& resume);

  // ---- emit_tensors.cpp
  void emit_tensor(const Source* source, const Guard& guard);
  void emit_tensor_fields(const TensorSpec& spec,
                          bool forward_mode);  // r10: the impl
  void emit_no_tangents();                     // r8: the AutogradMeta
  void emit_history_of_base(bool wanted);
  void ask(const void* function);
  void emit_tensor_numbers(const Source* source, const TensorSpec& spec);
  // Tensors known by identity, most of them parameters, of which many are
  // alike: a loop over a table takes the place of code for each.
  bool join_group(const Source* source);
  void emit_tensor_groups();
  void emit_tensor_group(int spec, const std::vector<const Source*>& members,
                         bool forward_mode);
  std::vector<const Source*> stable_members(const Guard& guard);
  asmjit::x86::Mem tensor_number(const asmjit::x86::Gp& impl, int64_t dim,
                                 bool stride, int64_t index);
  void emit_storage_relation(const Source* source, const Guard& guard);
  void storage_in_rax(const Source* tensor);
  void check_own_memory(const asmjit::x86::Gp& storage, const void* like);
  void emit_apart(std::vector<const void*> stable,
                  const std::vector<const void*>& fresh, int first);
  // Value in rax; overflow fails. What several places need is computed once.
  void emit_expression(const Expr& expr);
  void emit_operation(const Expr& expr);
  void count_uses(const Expr& expr);
  void emit_leaf(const asmjit::x86::Gp& to, const Expr& leaf);
  void emit_binary(ExprOp op);  // rax op r8 -> rax
  // ---- emit_floats.cpp
  void emit_float(ExprOp op);  // the same of the bits of doubles
  void emit_float_call(ExprOp op);
  void emit_logic(const Expr& expr);

  struct LateNumber {  // a size or stride given by an expression
    const Source* tensor;
    int64_t dim;
    bool stride;
    bool offset;
    int64_t index;
    Expr expr;
  };

  // What a walk has found and left for its end. (What it knows of each source
  // is in the nodes.)
  struct Walk {
    std::vector<int> root_guards;  // C calls from the roots
    std::vector<LateNumber> late_numbers;
    std::vector<std::pair<int, std::vector<const Source*>>> tensor_groups;
    std::set<PyTypeObject*> checked_versions;
    // The slots of expressions that were computed on every way to here, by
    // node; each keeps its node.
    std::unordered_map<const void*, std::pair<Expr, int>> computed;
  };

  const GuardSet& set_;
  const std::vector<SourceForm>& forms_;
  SourceValues values_;
  std::vector<Node> nodes_;
  std::vector<const Source*> roots_;
  size_t next_root_ = 0;            // to be visited
  std::vector<int> shared_guards_;  // about several sources or symbols
  std::vector<int> root_gathers_;
  std::vector<int> root_symbols_;

  Walk walk_;
  std::unordered_map<const void*, int> uses_;  // of expressions, by node
  int conditional_ = 0;  // within operands that not every run computes

  asmjit::CodeHolder code_;
  asmjit::x86::Assembler a_;
  asmjit::Label fail_;
  asmjit::Label near_fail_;  // the last jump there
  size_t near_fail_at_ = 0;
  const Source* in_rax_ = nullptr;
  int slots_ = 0;
  std::vector<int> depth_slots_;
  bool has_calls_ = false;
  bool saves_ = false;
  // rbx, where it is used: an address in the middle of the program's objects.
  const char* base_ = nullptr;
  bool uses_base_ = false;
  bool state_checked_ = false;
  bool uses_r14_ = false;         // not zero: some fact does not hold
  bool uses_groups_ = false;      // r12, r13
  bool dicts_unchanged_ = false;  // in this walk
  std::unique_ptr<uint64_t> dicts_verified_;  // the counter at the last success
  uint64_t in_r11_ = 0;
  bool r11_known_ = false;
  std::vector<std::function<void()>> late_;
  std::vector<Ref> kept_;
  std::vector<std::unique_ptr<std::vector<const void*>>> tables_;
  std::vector<Pin> pins_;
  std::unique_ptr<WatchSet> watches_ = std::make_unique<WatchSet>();
};

}  // namespace framejit
