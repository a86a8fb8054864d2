// The rows of builtin types: which one an object or a class has.
#include "bytecode/objects/builtin_types.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {
namespace {

constexpr size_t kRows = size_t(BuiltinType::kOther);

std::string name_of(BuiltinType row) {
  static const char* const kNames[] = {
#define FJ_TYPE(name, ...) #name,
#include "bytecode/objects/builtin_types.def"
  };
  return kNames[size_t(row)];
}

// The type that `setup` leaves in T.
Ref type_after(const std::string& setup) {
  Ref globals = Ref::steal(PyDict_New());
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  Ref done = Ref::steal(
      PyRun_String(setup.c_str(), Py_file_input, globals.get(), globals.get()));
  if (!done) PyErr_Print();
  return Ref::borrow(PyDict_GetItemString(globals.get(), "T"));
}

struct Case {
  const char* setup;
  const char* own;   // the row of the type itself
  const char* base;  // the first one in its MRO
};

const Case kCases[] = {
    {"T = list", "List", "List"},
    {"T = bool", "Other", "Int"},
    {"T = object", "Object", "Object"},
    {"T = type", "Type", "Type"},
    {"class T(list): pass", "Other", "List"},
    {"class A: pass\nclass T(A, dict): pass", "Other", "Dict"},
    {"from collections import OrderedDict as T", "OrderedDict", "OrderedDict"},
    {"import collections\nclass T(collections.OrderedDict): pass", "Other",
     "OrderedDict"},
    {"from collections import defaultdict as T", "DefaultDict", "DefaultDict"},
    {"from collections import Counter as T", "Other", "Dict"},
    {"import collections\nclass T(collections.deque): pass", "Other", "Deque"},
    {"import collections\nT = collections.namedtuple('N', 'a')", "Other",
     "Tuple"},
    {"import enum\nclass T(enum.Enum): A = 1", "Other", "Object"},
    {"import enum\nclass T(enum.IntEnum): A = 1", "Other", "Int"},
    {"T = OSError", "Other", "BaseException"},
    {"class T(KeyError): pass", "Other", "BaseException"},
    {"import abc\nT = abc.ABCMeta", "Other", "Type"},
    {"T = type(iter('ascii'))", "AsciiIterator", "AsciiIterator"},
    {"T = type(iter('\\u1234'))", "StrIterator", "StrIterator"},
    {"T = type([].append)", "CFunction", "CFunction"},
    {"T = type([].__len__)", "MethodWrapper", "MethodWrapper"},
    {"T = type(iter({}.items()))", "DictItemIterator", "DictItemIterator"},
    {"T = type(int | str)", "Union", "Union"},
    {"import re\nT = re.Pattern", "Pattern", "Pattern"},
    {"from types import SimpleNamespace as T", "SimpleNamespace",
     "SimpleNamespace"},
    {"class T: pass\nT.__name__ = T.__qualname__ = 'deque'\n"
     "T.__module__ = 'collections'",
     "Other", "Object"},
    // What a base in C is derived from says nothing of how it lies in memory.
    {"import array\nclass T(array.array): pass", "Other", "Object"},
};

TEST(BuiltinTypes, AreFound) {
  for (const Case& row : kCases) {
    Ref type = type_after(row.setup);
    ASSERT_TRUE(type && PyType_Check(type.get())) << row.setup;
    auto* object = reinterpret_cast<PyTypeObject*>(type.get());
    EXPECT_EQ(name_of(builtin_type(object)), row.own) << row.setup;
    EXPECT_EQ(name_of(builtin_base(object)), row.base) << row.setup;
  }
}

// The metaclass may leave bases out of the MRO.
TEST(BuiltinTypes, WithoutBasesHaveNoRow) {
  Ref type = type_after(
      "class M(type):\n"
      "    def mro(cls): return [cls]\n"
      "class T(list, metaclass=M): pass");
  ASSERT_TRUE(type);
  auto* object = reinterpret_cast<PyTypeObject*>(type.get());
  EXPECT_EQ(name_of(builtin_base(object)), "Other");
}

// Two rows of one type: the second would never be asked.
TEST(BuiltinTypes, HaveOneRowEach) {
  std::set<std::string> types;
  static const char* const kTypes[] = {
#define FJ_TYPE(name, type, ...) #type,
#include "bytecode/objects/builtin_types.def"
  };
  for (const char* type : kTypes)
    EXPECT_TRUE(types.insert(type).second) << type;
  EXPECT_EQ(types.size(), kRows + 1);
}

}  // namespace
}  // namespace framejit::bytecode
