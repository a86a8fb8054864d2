// C callables that steps name: what the steps of an entry call to put the
// program's objects into the state that the capture saw.
#pragma once

#include <Python.h>

namespace framejit::bytecode {

// X(name, C function that does it): name_function() is the callable.
#define FJ_STEP_FUNCTIONS(X)                                                  \
  X(set_instance_attribute, set_instance_attribute)    /* object, name, value \
                                                        */                    \
  X(delete_instance_attribute, set_instance_attribute) /* object, name */     \
  X(instance_dict, instance_dict)         /* object; gives its __dict__ */    \
  X(set_instance_dict, set_instance_dict) /* object, dict */                  \
  X(set_class, set_class)             /* object, class; gives the object */   \
  X(set_cell, set_cell)               /* cell, value */                       \
  X(clear_cell, set_cell)             /* cell */                              \
  X(replace_content, replace_content) /* container, content */                \
  X(copy_set, copy_set)               /* set or frozenset */                  \
  X(take_set, take_set)               /* set, another set */                  \
  X(restore_itertool, restore_state)  /* iterator, what __reduce__ gave */    \
  X(set_handled_exception, set_handled_exception) /* exception or None */     \
  X(add_traceback, add_traceback)                 /* exception, lines */

#define FJ_STEP_FUNCTION(name, function) PyObject* name##_function();
FJ_STEP_FUNCTIONS(FJ_STEP_FUNCTION)
#undef FJ_STEP_FUNCTION

}  // namespace framejit::bytecode
