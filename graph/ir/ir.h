// The graph IR: one representation for the torch-level graph, the ATen joint
// graph, and the forward and backward graphs after partition.
//
// A Graph owns a Block of Nodes in execution order. A Node calls its Target on
// Args and defines Values; Values know their uses. At torch level targets are
// Python callables (torch.cos, torch.Tensor.view, operator.add); at ATen level
// they are c10 operators. Opcodes are FX's. Metadata (`val`) gives dtype, sizes
// and strides (symbolic), and device of every tensor value. The text form
// parses back (printer.cpp, parser.cpp); verify.cpp checks the invariants.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>
#include <c10/util/complex.h>

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "graph/ir/use_list.h"
#include "guards/expr/expr.h"
#include "guards/result.h"

namespace framejit::graph {

class Node;
class Block;
class Graph;

// Metadata of a tensor value.
struct TensorMeta {
  c10::ScalarType dtype = c10::ScalarType::Float;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr storage_offset;
  c10::Device device = c10::kCPU;
  bool requires_grad = false;
  // Its memory holds the conjugates, the negatives, of its elements.
  bool is_conj = false, is_neg = false;
};

// Row by row without gaps, whatever the symbols are. (A dim of size 1 may have
// any stride.)
bool is_contiguous(const std::vector<Expr>& sizes,
                   const std::vector<Expr>& strides);
inline bool is_contiguous(const TensorMeta& meta) {
  return is_contiguous(meta.sizes, meta.strides);
}

struct Arg;

class Value {
 public:
  Node* node = nullptr;  // defining node (placeholders are nodes too)
  int index = 0;         // output number within the node
  int id = 0;            // %id, unique in the graph
  std::string name;      // optional, for placeholders: "inputs['x']"
  enum class Kind : uint8_t { kTensor, kInt, kOther } kind = Kind::kTensor;
  TensorMeta meta;  // kTensor
  Expr expr;        // kInt: symbolic value, of an int or a float
  UseList users;    // one item per use
};

// An argument: a Value, a constant, or a tree of those.
struct Arg {
  struct None {
    bool operator==(const None&) const { return true; }
  };
  struct Slice;
  struct List {
    std::vector<Arg> items;
  };
  struct Tuple {
    std::vector<Arg> items;
    Ref type = {};  // of a named tuple; only fx programs have some
  };
  struct Dict {
    std::vector<std::pair<Arg, Arg>> items;
  };
  using Variant =
      std::variant<None, Value*, bool, int64_t, double, c10::complex<double>,
                   std::string, Expr, c10::ScalarType, c10::Device, c10::Layout,
                   c10::MemoryFormat, Ref /* opaque Python object */, List,
                   Tuple, Dict, std::shared_ptr<Slice>>;
  Variant value;
  Arg() : value(None{}) {}
  template <class T>
  Arg(T v) : value(std::move(v)) {}
  template <class T>
  bool is() const {
    return std::holds_alternative<T>(value);
  }
  template <class T>
  const T& get() const {
    return std::get<T>(value);
  }
};
struct Arg::Slice {
  Arg start, stop, step;
};

enum class Opcode : uint8_t {
  kPlaceholder,   // graph input
  kGetAttr,       // constant tensor held by the graph: args[0] is a Ref;
                  // in an fx graph what the module has at the path `method`
  kCallFunction,  // python callable or aten operator
  kCallMethod,    // python method name on args[0]
  kCallModule,    // fx: the module at the path `method`
  kStateEnter,    // torch-level state region: target callable, args
  kStateExit,
  kOutput,  // args: the outputs; mutations listed in Graph
};

// What stands for a node outside the IR, such as its Python object (graph/fx).
// It is told when the node goes.
class NodeFace {
 public:
  NodeFace() = default;
  NodeFace(const NodeFace&) = delete;
  NodeFace& operator=(const NodeFace&) = delete;
  ~NodeFace() {
    if (object_) gone_(object_);
  }
  void* object() const { return object_; }
  void set(void* object, void (*gone)(void*)) {
    object_ = object;
    gone_ = gone;
  }
  void* release() { return std::exchange(object_, nullptr); }

 private:
  void* object_ = nullptr;
  void (*gone_)(void*) = nullptr;
};

class Node {
 public:
  Opcode op = Opcode::kCallFunction;
  Ref callable;                             // torch level target
  std::optional<c10::OperatorHandle> aten;  // ATen level target
  std::string method;     // kCallMethod; fx: every target that is a string
  std::vector<Arg> args;  // positional, schema order (ATen)
  std::vector<std::pair<std::string, Arg>> kwargs;  // torch level only
  std::vector<std::unique_ptr<Value>> outputs;
  // The outputs are one Python/IValue list rather than separate returns.
  bool outputs_are_list = false;
  // Torch level: the operators that made the outputs, as inferred.
  std::vector<c10::OperatorHandle> operators;
  Span span;  // user line
  // The program's own line that led there, where that one is a library's.
  Span caller;
  // Objects whose methods led there, outermost first; where nobody asked, none.
  std::vector<Ref> receivers;
  bool is_backward = false;  // joint graph: recorded under the engine
  // Then the autograd node that asked for it, by the order in which the trace
  // made them; -1: the engine itself.
  int64_t derivative_of = -1;
  bool must_keep = false;  // effects: not removed by DCE
  Block* block = nullptr;
  std::list<std::unique_ptr<Node>>::iterator position;
  int64_t order = 0;  // see Graph::is_before
  // What an fx program notes with a node: a type, a dict.
  Ref type, meta;
  // The arguments as Python objects, once somebody has asked for them. Whoever
  // changes the arguments drops them.
  Ref python_args, python_kwargs;
  void drop_python_arguments() {
    python_args.reset();
    python_kwargs.reset();
  }
  NodeFace face;                    // last: it goes first
  std::string target_name() const;  // "aten.mul.Tensor", "torch.cos"
};

class Block {
 public:
  using Nodes = std::list<std::unique_ptr<Node>>;
  Nodes nodes;
};

class Graph {
 public:
  Graph() = default;
  Graph(const Graph&) = delete;

  Block& block() { return block_; }
  const Block& block() const { return block_; }
  // Placeholders in input order. Symbols (of ints and floats) are kInt values.
  std::vector<Value*> inputs;
  // What the graph returns, in order (also the args of the kOutput node).
  std::vector<Arg> outputs;
  // After the graph ran, outputs[i].second is copied into input [i].first:
  // index into `inputs`, and the value.
  struct Mutation {
    int input;
    Value* value;
    // Does the new value carry autograd history? True unless known not to.
    bool requires_grad = true;
    // How often the program wrote to it: its version goes on by that.
    uint32_t writes = 1;
  };
  std::vector<Mutation> mutations;
  std::vector<Ref> keep_alive;  // Python objects that args point to

  Value* add_input(std::string name, TensorMeta meta);
  Value* add_symbol_input(std::string name, Expr symbol);
  // Appends (or inserts before `before`). Use lists are kept by the graph.
  Node* append(std::unique_ptr<Node> node);
  Node* insert_before(Node* before, std::unique_ptr<Node> node);
  Node* insert(Block::Nodes::iterator before, std::unique_ptr<Node> node);
  Value* add_output(Node* node, Value::Kind kind = Value::Kind::kTensor);
  void set_id(Value* value, int id);  // the parser keeps the ids of the text
  void set_outputs(std::vector<Arg> outputs);
  void erase(Node* node);  // must have no users
  // Takes it out of the graph: it uses no Values any more (they are None in
  // its arguments). Its Python arguments are the caller's to drop.
  std::unique_ptr<Node> detach(Node* node);
  void move(Node* node, Block::Nodes::iterator before);
  void set_arguments(Node* node, std::vector<Arg> args,
                     std::vector<std::pair<std::string, Arg>> kwargs);
  void replace_all_uses(Value* from, Value* to);
  // In one user, which becomes the last user of all it uses, as if it had been
  // given its arguments anew (that is the order of torch.fx).
  void replace_input(Node* user, Value* from, Value* to);
  // The same in all users, one after the other.
  void replace_all_inputs(Value* from, Value* to);
  // Does `a` stand before `b`? Numbers the nodes where edits have left no room
  // between numbers.
  bool is_before(const Node* a, const Node* b);
  // Fx programs edit nodes alone: `inputs` and `outputs` as the nodes have it.
  void update_interface();
  void rebuild_uses();  // recomputes every use list
  size_t num_calls() const;
  std::unique_ptr<Graph> clone() const;
  std::string str() const;  // printer.cpp

 private:
  void number(Node* node);

  Block block_;
  int next_id_ = 0;
  bool is_numbered_ = true;
};

// Calls f(Value*&) for every Value in an argument tree.
void for_each_value(Arg& arg, const std::function<void(Value*&)>& f);
void for_each_value(const Arg& arg, const std::function<void(Value*)>& f);

// Calls f for every expression in an argument tree, and in what is known of a
// value: its number, sizes, strides and offset.
void for_each_expr(const Arg& arg, const std::function<void(const Expr&)>& f);
void for_each_expr(const Value& value,
                   const std::function<void(const Expr&)>& f);

// "": fine; otherwise what is wrong (verify.cpp).
std::string verify(const Graph& graph);

}  // namespace framejit::graph
