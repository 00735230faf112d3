"""The addresses of accounts: those of the HTTP contract, and allauth's."""

from django.urls import include, path

from accounts.web import views

urlpatterns = [
    path("login/", views.login, name="login"),
    path("logout/", views.logout, name="logout"),
    path("login/code/confirm/", views.confirm_login_code),
    path("phone/verify/", views.verify_phone),
    path("signup/", views.signup, name="signup"),
    path("profile/", views.profile, name="profile"),
    path("sessions/everywhere/", views.sign_out_everywhere, name="sign-out-everywhere"),
    path("invitations/<str:token>/", views.invitation, name="staff-invitation"),
    path("", include("allauth.account.urls")),
    path("sessions/", include("allauth.usersessions.urls")),
    path("2fa/", include("allauth.mfa.urls")),
]
