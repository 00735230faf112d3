"""Sentences of Django's admin that the shop's catalogue translates itself.

Django's Chinese reads like a machine's in these places. The catalogues of ``locale/`` come before
Django's own; naming the sentences here keeps them in ours.
"""

from django.utils.translation import gettext_noop

PLAIN = (
    gettext_noop("Select %s to change"),
    gettext_noop("Select %s to view"),
    gettext_noop("Select %s"),
    gettext_noop("Add %s"),
    gettext_noop("Change %s"),
    gettext_noop("View %s"),
    gettext_noop("Add %(name)s"),
    gettext_noop("Add"),
    gettext_noop("Home"),
    gettext_noop("Breadcrumbs"),
    gettext_noop("Filter"),
    gettext_noop("Action:"),
    gettext_noop("Go"),
    gettext_noop("Run the selected action"),
    gettext_noop("Log out"),
    gettext_noop("View site"),
    gettext_noop("View on site"),
    gettext_noop("Save and add another"),
    gettext_noop("Save and continue editing"),
    gettext_noop("No, take me back"),
    gettext_noop("Yes, I’m sure"),
    gettext_noop("Are you sure?"),
    gettext_noop("Clear selection"),
    gettext_noop("Click here to select the objects across all pages"),
    gettext_noop("Select all objects on this page for an action"),
    gettext_noop("Select this object for an action - {}"),
    gettext_noop("Select all %(total_count)s %(module_name)s"),
    gettext_noop("0 of %(cnt)s selected"),
    gettext_noop("Change history: %s"),
    gettext_noop("Cannot delete %(name)s"),
    gettext_noop("Delete selected %(verbose_name_plural)s"),
    gettext_noop("Successfully deleted %(count)d %(items)s."),
    gettext_noop("The {name} “{obj}” was added successfully."),
    gettext_noop("The {name} “{obj}” was changed successfully."),
    gettext_noop("The {name} “{obj}” was changed successfully. You may edit it again below."),
    gettext_noop("The {name} “{obj}” was added successfully. You may add another {name} below."),
    gettext_noop("The {name} “{obj}” was changed successfully. You may add another {name} below."),
    gettext_noop("The %(name)s “%(obj)s” was deleted successfully."),
    gettext_noop("You may edit it again below."),
    gettext_noop(
        "Items must be selected in order to perform actions on them. No items have been changed."
    ),
    gettext_noop("No action selected."),
    gettext_noop("No fields changed."),
    gettext_noop("Added."),
    gettext_noop("Changed {fields}."),
    gettext_noop("Please correct the error below."),
    gettext_noop(
        "This object doesn’t have a change history. It probably wasn’t added via this admin site."
    ),
    gettext_noop(
        'Are you sure you want to delete the %(object_name)s "%(escaped_object)s"? '
        "All of the following related items will be deleted:"
    ),
    gettext_noop(
        "Are you sure you want to delete the selected %(objects_name)s? "
        "All of the following objects and their related items will be deleted:"
    ),
    gettext_noop("Skip to main content"),
)
"""All without a plural form of their own."""
